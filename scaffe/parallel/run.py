"""Run: how the ranks of a job train together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from collectives import ArgumentError, CollectiveError, check_algorithm
from collectives.codecs import CODECS, FEEDBACK
from collectives.schedules.algorithms import LEADERS, OTHERS, downwards, every_name
from collectives.schedules.registry import known
from collectives.supernodes import as_text, finder
from scaffe.errors import AgreedError, ScaffeError
from scaffe.near import near
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.owners import OWNERS, ROOT
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

    `workflow` names a registered one, or "auto"; `sync` is one of SYNCS, `owners` of OWNERS, `drive` of DRIVES or
    "auto". `reduce` names the algorithm of the collectives ("auto", "mpi", "chain", "cb", ...), `chain_size` its groups
    in ranks (0: as in the name), `chunk_bytes` its messages (0: as tuned). Buckets have up to `bucket_bytes` ("0",
    "4M", "inf", "auto"). `gradient_numbers` are those of gradients on their way, and with `error_feedback` what
    rounding them loses is added the next time. `broadcast_numbers` "bf16" broadcasts weights that layers multiply in
    bfloat16 as such. `supernodes` gives the hosts of each supernode ("n0,n1;n2,n3", a pattern, "slurm":
    collectives.supernodes). `scaling` "strong" divides the batch over the ranks, "weak" gives each rank all of it.

    Training stops after `patience` tests without a lower loss of the first test net, whose best weights are kept.
    All of the run's complete snapshots but the newest `keep_snapshots` are removed (0: all stay). With `snapshot_async`
    a thread of the root writes a copy of weights and history while training goes on; without it the iteration waits, as
    it always does for `Solver.snapshot`. With `snapshot_budget` such copies are written, as often as this share of the
    time allows (0 to 1, or "3%"), not at the interval of the solver file.

    With `on_rank_loss` "shrink" the ranks that are left go on when a process ends, at the iteration that was under way,
    as long as they are at least `min_ranks`. Then the values that an iteration's updates replace are kept meanwhile.
    The last `spares` ranks of the launch do not train, but wait to take the places of lost ones.
    Every `mirror_every` iterations the root sends its weights and history to another rank, in case that it is lost
    itself (0: never).

    Raise ScaffeError for other values; `check_reduce`, `check_owners` and `check_gradients` check what goes with what,
    since a flag can complete what a file says.
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
    patience: int = setting(
        0, "tests without a lower held-out loss after which training stops; 0: never", metavar="N", rare=True
    )
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
    owners: str = setting(
        ROOT, "who sums, updates and sends which parameters: the root all, each rank buckets, or a slice of each",
        choices=(*OWNERS, AUTO), rare=True,
    )  # fmt: skip
    gradient_numbers: str = setting(
        "float32", "of gradients on their way; sums stay float32", choices=("float32", *CODECS), rare=True
    )
    error_feedback: str = setting(
        AUTO, "add what rounding gradients has lost the next time; auto: with int8", choices=(AUTO, "on", "off"),
        rare=True,
    )  # fmt: skip

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

    def check_owners(self) -> None:
        """Raise ScaffeError for what several owners can't have."""
        if self.owners == ROOT:
            return
        if self.sync == "allreduce":
            raise ScaffeError(
                f"--owners {self.owners} with --sync allreduce: there every rank updates all parameters; leave one out"
            )
        if self.mirror_every:
            raise ScaffeError(
                f"--owners {self.owners} with --mirror-every: a mirror has the root's history alone; leave one out"
            )

    def check_gradients(self) -> None:
        """Raise ScaffeError for messages that can't be rounded, or whose loss can't be kept."""
        given = f"--gradient-numbers {self.gradient_numbers}"
        if not self.numbers:
            if self.error_feedback == "on":
                raise ScaffeError(f"--error-feedback on with {given}: nothing is rounded; give {' or '.join(CODECS)}")
            return
        if self.reduce.removeprefix(LEADERS) in OTHERS and self.reduce != AUTO:
            raise ScaffeError(self._unrounded())
        if self.keeps_residuals and self.shrinks:
            raise ScaffeError(
                f"{given} with error feedback and --on-rank-loss shrink: what a lost rank keeps of its gradients is "
                "lost; give --error-feedback off, or leave one out"
            )

    def check_rounded_leaders(self) -> None:
        """Raise AgreedError for leaders with rounded messages, which only nodes with GPUs have."""
        if self.numbers and self.reduce.startswith(LEADERS):
            raise AgreedError(self._unrounded())

    def _unrounded(self) -> str:
        """Return the error of an algorithm that rounds no messages."""
        return (
            f"--gradient-numbers {self.gradient_numbers} with --reduce {self.reduce}: schedules alone round messages, "
            "such as ring and chain; leave --reduce out"
        )

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
        return OWNERS.get(self.owners, SYNCS[self.sync]) if self.owners != ROOT else SYNCS[self.sync]

    @property
    def keeps_residuals(self) -> bool:
        """Whether ranks keep what rounding their gradients has lost, and add it the next time."""
        return FEEDBACK in self.numbers

    @property
    def numbers(self) -> str:
        """The numbers of gradients in messages, as collectives name them; "" for float32."""
        if self.gradient_numbers not in CODECS:
            return ""
        has_feedback = self.error_feedback == "on" or (self.error_feedback == AUTO and self.gradient_numbers == "int8")
        return self.gradient_numbers + FEEDBACK * has_feedback

    @property
    def candidates(self) -> dict[str, Run]:
        """The runs to time, by name: this one alone, unless a field is "auto"."""
        workflows = registered()
        kinds = [kind for kind in workflows.values() if self.workflow == AUTO and kind.is_tried]
        found = {
            name: replace(self, workflow=kind.name, drive=drive)
            for kind in kinds or [workflows[self.workflow]]
            for name, drive in kind.by_drive(self.drive).items()
        }
        if self.owners != AUTO:
            return found
        pairs = ((name, run, one) for name, run in found.items() for one in self._owners)
        return {f"{name}, owners {one}": replace(run, owners=one) for name, run, one in pairs}

    @property
    def _owners(self) -> list[str]:
        """The owners whose collectives have the algorithm."""
        return [one for one in OWNERS if one == ROOT or replace(self, owners=one).has_reduce]

    @property
    def has_reduce(self) -> bool:
        """Whether `reduce` names an algorithm of the collective that sums gradients."""
        try:
            check_algorithm(self.collective, self.reduce, self.chain_size or None)
        except CollectiveError:
            return False
        return True

    @property
    def how(self) -> dict[str, Any]:
        """The keywords of a reduce, or allreduce, of gradients."""
        return self._how | ({"numbers": self.numbers} if self.numbers else {})

    @property
    def how_down(self) -> dict[str, Any]:
        """The keywords of a broadcast of parameters."""
        return self._how | {"algorithm": downwards(self.reduce)}

    @property
    def _how(self) -> dict[str, Any]:
        return {"algorithm": self.reduce, "chain_size": self.chain_size or None, "chunk_bytes": self.chunk_bytes}
