"""Run: how the ranks work together, as flags and a cluster's file name it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields, replace
from typing import Any

from collectives import ArgumentError, CollectiveError, check_algorithm
from collectives.schedules.algorithms import downwards
from collectives.supernodes import as_text, finder
from scaffe.errors import ScaffeError
from scaffe.parallel.buckets import parse_bytes
from scaffe.parallel.drive import DRIVES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKFLOWS = ("auto", "SC-B", "SC-OB", "SC-OBR")
SYNCS = ("reduce-bcast", "allreduce")
KNOWN = {"workflow": WORKFLOWS, "sync": SYNCS, "drive": ("auto", *DRIVES)}


@dataclass(frozen=True)
class Run:
    """When and by which collectives parameters and gradients travel.

    `workflow` is one of WORKFLOWS, `sync` of SYNCS, `drive` of DRIVES or "auto". `reduce` names the collectives'
    algorithm ("auto", "mpi", "chain", "cb", ...), `chain_size` its groups (0: as the name says), `chunk_bytes` its
    messages (0: as tuned). Buckets have up to `bucket_bytes` ("0", "4M", "inf", "auto"). `supernodes` says which hosts
    stand in which one ("n0,n1;n2,n3", a pattern, "slurm": collectives.supernodes). Raise ScaffeError for anything
    else; for `reduce` it is `check_reduce` that does, once a file's settings and the flags are together.
    """

    workflow: str = "SC-B"
    sync: str = "reduce-bcast"
    reduce: str = "auto"
    chain_size: int = 0
    chunk_bytes: int = 0
    bucket_bytes: str = "4M"
    drive: str = "auto"
    supernodes: str = ""

    def __post_init__(self) -> None:
        for name, values in KNOWN.items():
            if getattr(self, name) not in values:
                raise ScaffeError(f"unknown {name} '{getattr(self, name)}'; known: {' '.join(values)}")
        for name in ("chain_size", "chunk_bytes"):
            if getattr(self, name) < 0:
                raise ScaffeError(f"{name} must be 0 or more, got {getattr(self, name)}")
        try:
            if self.supernodes:
                finder(self.supernodes)
        except ArgumentError as error:
            raise ScaffeError(str(error)) from None
        try:
            if self.bucket_bytes != "auto":
                parse_bytes(self.bucket_bytes)
        except ValueError:
            raise ScaffeError(
                f"bucket_bytes must be bytes such as 4M, inf or auto; got '{self.bucket_bytes}'"
            ) from None

    def check_reduce(self) -> None:
        """Raise ScaffeError unless `reduce` names what `sync` can be done by, on however many ranks."""
        try:
            check_algorithm("allreduce" if self.sync == "allreduce" else "reduce", self.reduce, self.chain_size or None)
        except CollectiveError as error:
            raise ScaffeError(f"--reduce: {error}") from None

    @property
    def overlaps(self) -> tuple[bool, bool]:
        """Whether propagation overlaps with the forward pass, and aggregation with the backward pass."""
        return self.workflow != "SC-B", self.workflow == "SC-OBR"

    @property
    def candidates(self) -> dict[str, Run]:
        """The runs of which the fastest is to be taken, by name: this one alone, unless it leaves something open."""
        if self.workflow == "SC-B":
            return {"SC-B": self}
        drives = DRIVES if self.drive == "auto" else [self.drive]
        workflow = "SC-OBR" if self.workflow == "auto" else self.workflow
        overlapping = {f"{workflow} by {drive}": replace(self, workflow=workflow, drive=drive) for drive in drives}
        return ({"SC-B": replace(self, workflow="SC-B")} if self.workflow == "auto" else {}) | overlapping

    @property
    def how(self) -> dict[str, Any]:
        """What a reduce, or allreduce, of gradients is told."""
        return {"algorithm": self.reduce, "chain_size": self.chain_size or None, "chunk_bytes": self.chunk_bytes}

    @property
    def how_down(self) -> dict[str, Any]:
        """What a broadcast of parameters is told."""
        return self.how | {"algorithm": downwards(self.reduce)}


def read_run(path: str | os.PathLike) -> Run:
    """Return what a TOML file says, keys spelled as the flags. Raise ScaffeError where it makes no sense."""
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except OSError as error:
        raise ScaffeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScaffeError(f"{path}: {error}") from None
    types = {field.name: type(field.default) for field in fields(Run)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in types:
            raise ScaffeError(f"{path}: unknown key '{key}'; known: {' '.join(types).replace('_', '-')}")
        if name == "bucket_bytes" and isinstance(value, int):
            value = str(value)
        if name == "supernodes" and isinstance(value, list):
            value = _hosts(value)
        if type(value) is not types[name]:
            raise ScaffeError(f"{path}: {key} must be {_NOUNS[types[name]]}, got {value!r}")
        values[name] = value
    try:
        return Run(**values)
    except ScaffeError as error:
        raise ScaffeError(f"{path}: {error}") from None


def _hosts(value: list) -> object:
    """Return lists of hosts as a flag has them; anything else as it is."""
    fine = all(isinstance(hosts, list) and all(isinstance(host, str) for host in hosts) for hosts in value)
    return as_text(value) if fine else value


_NOUNS = {str: "a string", int: "a whole number"}


def over(run: Run, **flags: Any) -> Run:
    """Return the run with those fields replaced that a flag was given for."""
    return replace(run, **{name: value for name, value in flags.items() if value is not None})
