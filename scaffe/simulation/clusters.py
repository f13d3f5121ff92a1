"""Described clusters: files that give a cluster's numbers, each with its unit and where it comes from."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from collectives.model.clusters import Cluster
from readers.files import read_input
from scaffe.errors import ScaffeError
from scaffe.near import near

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "described"
ORIGINS = ("stated", "derived", "data sheet", "fitted", "assumed", "measured")
UNITS = {
    "nodes": "nodes of the cluster",
    "devices": "devices, one for each rank, of a node",
    "flops": "operations a second that a device sustains in matrix products",
    "memory": "bytes a second of a device's memory",
    "capacity": "bytes of a device's memory; 0: no limit",
    "launch": "seconds that each pass of a layer takes besides",
    "alpha_in": "seconds of a message within a node",
    "rate_in": "bytes a second of a message within a node",
    "alpha": "seconds of a message between nodes",
    "rate": "bytes a second of a message between nodes",
    "add": "bytes a second of a sum of two arrays",
    "adapters": "messages that leave a node at full rate",
    "leaders": "ranks of a node that send between nodes in leaders-NAME: 1, as on GPUs, or all of them",
    "supernode": "nodes of a supernode; 0: there are none",
    "oversubscription": "nodes of a supernode for each that can send out of it at full rate",
    "read": "bytes a second that a node reads of its data; 0: no limit",
    "storage": "bytes a second that all nodes read together; 0: no limit",
}
DEFAULTS = {"launch": 0.0, "adapters": 1, "leaders": 1, "supernode": 0, "oversubscription": 1.0, "read": 0.0}
DEFAULTS |= {"storage": 0.0, "capacity": 0.0}
WHOLE = ("nodes", "devices", "adapters", "leaders", "supernode")
MAY_BE_ZERO = ("launch", "alpha_in", "alpha", "supernode", "read", "storage", "capacity")
LEAST, MOST = 1e-30, 1e30  # of a number that is not 0: far beyond any machine, and products of a few stay finite


@dataclass(frozen=True)
class Quantity:
    """A number, its origin (one of ORIGINS), and the place that gives it, or the reason."""

    value: float
    origin: str
    where: str


@dataclass(frozen=True)
class DescribedCluster:
    """A cluster's numbers by the names of UNITS; those with a default may be missing, the others not."""

    name: str
    about: str
    quantities: Mapping[str, Quantity]

    def __post_init__(self) -> None:
        """Raise ScaffeError where some ranks of a node would send, but not all."""
        if self["leaders"] not in (1, self["devices"]):
            all_of_them = f"{self['devices']:g}, all devices of a node"
            raise ScaffeError(f"{self.name}: leaders must be 1, or {all_of_them}; got {self['leaders']:g}")

    def __getitem__(self, name: str) -> float:
        """Return a number."""
        return self.quantities[name].value if name in self.quantities else DEFAULTS[name]

    def with_(self, **values: float) -> DescribedCluster:
        """Return the cluster with other numbers, noted as assumed. Raise ScaffeError for an unknown name."""
        given = {name: _quantity(self.name, name, {"value": v, "from": "assumed"}) for name, v in values.items()}
        return replace(self, quantities={**self.quantities, **given})

    @cached_property
    def links(self) -> Cluster:
        """The times of messages and sums, for the model of collectives."""
        return Cluster(
            self.name,
            int(self["nodes"]),
            int(self["devices"]),
            alpha_in=self["alpha_in"],
            beta_in=1 / self["rate_in"],
            alpha=self["alpha"],
            beta=1 / self["rate"],
            gamma=1 / self["add"],
            nics=int(self["adapters"]),
            nodes_per_supernode=int(self["supernode"]) or None,
            oversubscription=self["oversubscription"],
            source=self.about,
        )

    def reading(self, ranks: int) -> float:
        """Return the bytes a second that each of `ranks` ranks reads; infinite where nothing limits it."""
        on_a_node = min(ranks, int(self["devices"]))
        node, all_nodes = self["read"] or float("inf"), self["storage"] or float("inf")
        return min(node / on_a_node, all_nodes / ranks)


def names() -> list[str]:
    """Return the names of the clusters that are shipped."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_cluster(name: str | os.PathLike[str]) -> DescribedCluster:
    """Return a shipped cluster by its name, or that of a TOML file. Raise ScaffeError for any other name or file."""
    text = os.fspath(name)
    if text in names():
        return _read(FOLDER / f"{text}.toml", text)
    if not text.endswith(".toml"):
        others = f"; known: {' '.join(names())}, or the path of a .toml file"
        raise ScaffeError(f"unknown cluster '{text}'{near(text, names()) or others}")
    return _read(Path(text), Path(text).stem)


def _read(path: Path, name: str) -> DescribedCluster:
    try:
        given = tomllib.loads(read_input(path).decode())
    except OSError as error:
        raise ScaffeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise ScaffeError(f"{path}: {error}") from None
    about = str(given.pop("about", ""))
    quantities = {key: _quantity(str(path), key, value) for key, value in given.items()}
    missing = [key for key in UNITS if key not in quantities and key not in DEFAULTS]
    if missing:
        raise ScaffeError(f"{path}: no '{missing[0]}', {UNITS[missing[0]]}")
    return DescribedCluster(name, about, quantities)


def _quantity(path: str, key: str, given: Any) -> Quantity:
    """Return a checked number. Raise ScaffeError for an unknown name, value or origin."""
    if key not in UNITS:
        raise ScaffeError(f"{path}: unknown number '{key}'{near(key, UNITS, 'known')}")
    if not isinstance(given, dict) or not {"value", "from"} <= given.keys():
        raise ScaffeError(f'{path}: {key} must be {{ value = N, from = "stated", where = "..." }}, got {given!r}')
    value, origin = given["value"], given["from"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ScaffeError(f"{path}: {key} must be a number, {UNITS[key]}; got {value!r}")
    if (not value and key not in MAY_BE_ZERO) or (key in WHOLE and value != int(value)):
        raise ScaffeError(f"{path}: {key} must be a {'whole ' * (key in WHOLE)}number above 0; got {value!r}")
    if value and not LEAST <= value <= MOST:
        raise ScaffeError(f"{path}: {key}, {UNITS[key]}, must be from {LEAST:g} to {MOST:g}; got {value!r}")
    if origin not in ORIGINS:
        raise ScaffeError(f"{path}: {key} is from '{origin}'; known: {', '.join(ORIGINS)}")
    return Quantity(value, origin, str(given.get("where", "")))
