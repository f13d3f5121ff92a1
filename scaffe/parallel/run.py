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
from scaffe.parallel.workflows.sc_b import ScB
from scaffe.parallel.workflows.workflow import registered

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AUTO = "auto"
SYNCS = {"reduce-bcast": "reduce", "allreduce": "allreduce"}  # with the collective by which gradients meet


def known() -> dict[str, tuple[str, ...]]:
    """Return the values of the fields that have few."""
    return {"workflow": (AUTO, *registered()), "sync": tuple(SYNCS), "drive": (AUTO, *DRIVES)}


@dataclass(frozen=True)
class Run:
    """When and by which collectives parameters and gradients travel.

    `workflow` names one that is registered, or "auto"; `sync` is one of SYNCS, `drive` of DRIVES or "auto". `reduce`
    names the collectives' algorithm ("auto", "mpi", "chain", "cb", ...), `chain_size` its groups (0: as the name says),
    `chunk_bytes` its messages (0: as tuned). Buckets have up to `bucket_bytes` ("0", "4M", "inf", "auto"). `supernodes`
    says which hosts stand in which one ("n0,n1;n2,n3", a pattern, "slurm": collectives.supernodes). Raise ScaffeError
    for anything else; for `reduce` it is `check_reduce` that does, once a file's settings and the flags are together.
    """

    workflow: str = ScB.name
    sync: str = "reduce-bcast"
    reduce: str = "auto"
    chain_size: int = 0
    chunk_bytes: int = 0
    bucket_bytes: str = "4M"
    drive: str = "auto"
    supernodes: str = ""

    def __post_init__(self) -> None:
        for name, values in known().items():
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
            check_algorithm(self.collective, self.reduce, self.chain_size or None)
        except CollectiveError as error:
            raise ScaffeError(f"--reduce: {error}") from None

    @property
    def collective(self) -> str:
        """The collective by which gradients meet: "reduce" or "allreduce"."""
        return SYNCS[self.sync]

    @property
    def candidates(self) -> dict[str, Run]:
        """The runs of which the fastest is to be taken, by name: this one alone, unless it leaves something open."""
        workflows = registered()
        kinds = [kind for kind in workflows.values() if self.workflow == AUTO and kind.is_tried]
        return {
            name: replace(self, workflow=kind.name, drive=drive)
            for kind in kinds or [workflows[self.workflow]]
            for name, drive in kind.by_drive(self.drive).items()
        }

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
