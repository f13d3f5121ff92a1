"""Run: how the ranks of a job train together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from collectives import ArgumentError, CollectiveError, check_algorithm
from collectives.schedules.algorithms import downwards, every_name
from collectives.schedules.registry import known
from collectives.supernodes import as_text, finder
from scaffe.errors import ScaffeError
from scaffe.near import near
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.workflows.sc_b import ScB
from scaffe.parallel.workflows.workflow import registered
from scaffe.setting import check_fields, parse_bytes, parse_share, setting, settings_of

AUTO = "auto"
SYNCS = {"reduce-bcast": "reduce", "allreduce": "allreduce"}  # with the collective that sums gradients
BROADCAST_NUMBERS = ("float32", "bf16")
SCALINGS = ("strong", "weak")
ON_RANK_LOSS = ("stop", "shrink")


def _workflows() -> Sequence[str]:
    return (AUTO, *registered())


def _text(given: object) -> object:
    """Return a whole number of bytes, as a file can have it, as a flag's text."""
    return str(given) if isinstance(given, int) else given


def _hosts(given: object) -> object:
    """Return a file's lists of hosts as a flag's text, anything else as it is."""
    if not isinstance(given, list) or not all(isinstance(hosts, list) for hosts in given):
        return given
    return as_text(given) if all(isinstance(host, str) for hosts in given for host in hosts) else given


@dataclass(frozen=True)
class Run:
    """How the ranks of a job train together: workflow, collectives, and division of the batch.

    `workflow` names a registered one, or "auto"; `sync` is one of SYNCS, `drive` of DRIVES or "auto". `reduce` names
    the algorithm of the collectives ("auto", "mpi", "chain", "cb", ...), `chain_size` its groups in ranks (0: as in
    the name), `chunk_bytes` its messages (0: as tuned). Buckets have up to `bucket_bytes` ("0", "4M", "inf", "auto").
    `broadcast_numbers` "bf16" broadcasts weights that layers multiply in bfloat16 as such. `supernodes` gives the hosts
    of each supernode ("n0,n1;n2,n3", a pattern, "slurm": collectives.supernodes). `scaling` "strong" divides the batch
    over the ranks, "weak" gives each rank the whole batch.

    All of the run's complete snapshots but the newest `keep_snapshots` are removed (0: all stay). With `snapshot_async`
    a thread of the root writes a copy of weights and history while training goes on; without it the iteration waits, as
    it always does for `Solver.snapshot`. With `snapshot_budget` such copies are written, as often as this share of the
    time allows (0 to 1, or "3%"), not at the interval of the solver file.

    With `on_rank_loss` "shrink" the ranks that are left go on when a process ends, at the iteration that was under way,
    as long as they are at least `min_ranks`. Then the values that an iteration's updates replace are kept meanwhile.
    The last `spares` ranks of the launch do not train, but wait to take the places of lost ones.
    Every `mirror_every` iterations the root sends its weights and history to another rank, in case that it is lost
    itself (0: never).

    Raise ScaffeError for other values; `check_reduce` checks `reduce`, since a flag can complete what a file says.
    """

    workflow: str = setting(ScB.name, "what overlaps with computing", choices=_workflows)
    sync: str = setting("reduce-bcast", "how gradients and parameters travel", choices=tuple(SYNCS))
    reduce: str = setting(AUTO, "algorithm", names=every_name, metavar="NAME")
    chain_size: int = setting(
        0, "ranks in a chain of cb, cc, ccb; 0: as in the algorithm's name", metavar="N", rare=True
    )
    chunk_bytes: int = setting(0, "bytes of a message; 0: as tuned", metavar="N", rare=True)
    bucket_bytes: str = setting("4M", "gradients that travel together: 0, 4M, inf, auto", metavar="N", parse=_text)
    drive: str = setting(
        AUTO, "how messages progress: between layers, or while a helper thread computes", choices=(AUTO, *DRIVES),
        rare=True,
    )  # fmt: skip
    broadcast_numbers: str = setting(
        "float32", "of weights on their way from the root; bf16 takes --compute bf16", choices=BROADCAST_NUMBERS,
        rare=True,
    )  # fmt: skip
    supernodes: str = setting(
        "", "hosts of each: 'n0,n1;n2,n3', a pattern such as 'rack(\\d+)-.*', or slurm",
        metavar="HOSTS", parse=_hosts, rare=True,
    )  # fmt: skip
    scaling: str = setting(SCALINGS[0], "divide the batch over the ranks, or give each all",
                           choices=SCALINGS, flag="scal")  # fmt: skip
    keep_snapshots: int = setting(0, "newest snapshots that stay; 0: all", metavar="N")
    snapshot_async: bool = setting(
        True, "write snapshots while training goes on; --no-snapshot-async: wait for them", rare=True
    )
    snapshot_budget: float = setting(
        0.0, "share of the time that snapshots may take: sets how often", metavar="N%", parse=parse_share, rare=True
    )
    on_rank_loss: str = setting(
        "stop", "when a rank's process ends: end the job, or go on without it", choices=ON_RANK_LOSS, rare=True
    )
    min_ranks: int = setting(1, "ranks without which shrink stops, with exit code 76", metavar="N", rare=True)
    spares: int = setting(0, "last ranks of the launch that wait to take lost ranks' places", metavar="K", rare=True)
    mirror_every: int = setting(
        0, "iterations after which another rank gets the root's solver state; 0: never", metavar="N", rare=True
    )

    def __post_init__(self) -> None:
        check_fields(self, Run)
        for one in settings_of(Run):
            value = getattr(self, one.name)
            if one.values and value not in one.values:
                raise ScaffeError(f"unknown {one.name} '{value}'{near(value, one.values, 'known')}")
            least = 1 if one.name == "min_ranks" else 0
            if isinstance(value, int) and value < least:
                raise ScaffeError(f"{one.name} must be {least} or more, got {value}")
        if not 0 <= self.snapshot_budget < 1:
            raise ScaffeError(f"snapshot_budget must be a share of the time below 100%, got {self.snapshot_budget:g}")
        if self.snapshot_budget and not self.snapshot_async:
            raise ScaffeError(
                "snapshot_budget: its snapshots are written in the background; leave --no-snapshot-async out"
            )
        try:
            if self.supernodes:
                finder(self.supernodes)
        except ArgumentError as error:
            raise ScaffeError(str(error)) from None
        try:
            if self.bucket_bytes != AUTO:
                parse_bytes(self.bucket_bytes)
        except ValueError:
            raise ScaffeError(
                f"bucket_bytes must be bytes such as 4M, inf or auto; got '{self.bucket_bytes}'"
            ) from None

    def check_reduce(self) -> None:
        """Raise ScaffeError unless `reduce` names an algorithm of the collective that `sync` uses."""
        try:
            check_algorithm(self.collective, self.reduce, self.chain_size or None)
        except CollectiveError as error:
            names = known(self.collective).split(", ")
            hint = "" if self.reduce in names else near(self.reduce, names)
            raise ScaffeError(f"--reduce: {error}{hint}") from None

    @property
    def shrinks(self) -> bool:
        """Whether the ranks that are left go on when one is lost."""
        return self.on_rank_loss == "shrink"

    @property
    def collective(self) -> str:
        """The collective that sums gradients: "reduce" or "allreduce"."""
        return SYNCS[self.sync]

    @property
    def candidates(self) -> dict[str, Run]:
        """The runs to time, by name: this one alone, unless a field is "auto"."""
        workflows = registered()
        kinds = [kind for kind in workflows.values() if self.workflow == AUTO and kind.is_tried]
        return {
            name: replace(self, workflow=kind.name, drive=drive)
            for kind in kinds or [workflows[self.workflow]]
            for name, drive in kind.by_drive(self.drive).items()
        }

    @property
    def how(self) -> dict[str, Any]:
        """The keywords of a reduce, or allreduce, of gradients."""
        return {"algorithm": self.reduce, "chain_size": self.chain_size or None, "chunk_bytes": self.chunk_bytes}

    @property
    def how_down(self) -> dict[str, Any]:
        """The keywords of a broadcast of parameters."""
        return self.how | {"algorithm": downwards(self.reduce)}
