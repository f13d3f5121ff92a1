"""Presets: the decisions of each paper's system, as settings of a training run.

python -m scaffe.training.presets prints them as a table of the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scaffe.errors import ScaffeError
from scaffe.near import near
from scaffe.parallel.workflows.sc_b import ScB
from scaffe.parallel.workflows.sc_obr import ScObr
from scaffe.training.settings import Settings


@dataclass(frozen=True)
class Decision:
    """What a system does, the section of its paper, and the values of the flags for it, by name."""

    section: str
    what: str
    flags: Mapping[str, str | int]

    def __str__(self) -> str:
        return " ".join(f"--{flag} {value}" for flag, value in self.flags.items())


@dataclass(frozen=True)
class Preset:
    """The decisions of one system. As text, their flags."""

    system: str
    decisions: tuple[Decision, ...]

    @property
    def settings(self) -> Settings:
        """The settings of a run without flags, with those that the paper decides."""
        flags = {flag: value for decision in self.decisions for flag, value in decision.flags.items()}
        return Settings().with_flags({flag.replace("-", "_"): value for flag, value in flags.items()})

    def __str__(self) -> str:
        return " ".join(map(str, self.decisions))


PRESETS = {
    "numa-caffe": Preset(
        "NUMA-Caffe",
        (
            Decision("4", "a framework for CPUs", {"device": "cpu"}),
            Decision("4.1.1", "the batch is divided", {"scal": "strong"}),
            Decision("4.2", "a solver for each NUMA domain", {"instances": "numa"}),
            Decision("4.2", "gradients are summed up a tree of the domains", {"gather": "tree:2"}),
        ),
    ),
    "singlecaffe": Preset(
        "SingleCaffe",
        (
            Decision("IV.A", "the batch is divided over the workers", {"scal": "strong"}),
            Decision("IV.C", "worker i sums slice i of all gradients", {"gather": "slices"}),
            Decision("V.A", "runs on CPUs", {"device": "cpu"}),
            Decision("V.B", "up to one worker for each core", {"instances": "core"}),
        ),
    ),
    "parax": Preset(
        "ParaX",
        (
            Decision("4.1", "an instance on each core", {"device": "cpu", "instances": "core"}),
            Decision("4.2", "a gradient server in shared memory", {"gather": "server"}),
            Decision("5", "no delayed initiation", {"launch-groups": 1, "launch-delay": "0"}),
        ),
    ),
    "s-caffe": Preset(
        "S-Caffe",
        (
            Decision("3.1", "one solver for each process", {"instances": "1"}),
            Decision("4.1", "every process reads", {"readers": "parallel"}),
            Decision("4.1", "gradients are reduced to the root, parameters broadcast", {"sync": "reduce-bcast"}),
            Decision(
                "4.2 and 4.3",
                "a broadcast and a reduce for each layer, while a helper thread computes",
                {"workflow": ScObr.name, "drive": "helper", "bucket-bytes": "0"},
            ),
            Decision("5 and 6.6", "chunked chains of 8 below a binomial tree", {"reduce": "cb-8"}),
        ),
    ),
    "swcaffe": Preset(
        "swCaffe",
        (
            Decision("II.A", "a many-core CPU", {"device": "cpu"}),
            Decision("IV.B and VI.A", "the faster kernel of each convolution, by timing", {"plan": "timed"}),
            Decision(
                "V.A",
                "a thread for each of 4 core groups, which have memories of their own; the first sums",
                {"instances": "numa", "gather": "tree:3"},
            ),
            Decision(
                "V.A",
                "an allreduce of all gradients, packed, after the backward pass; every node updates",
                {"workflow": ScB.name, "sync": "allreduce", "bucket-bytes": "inf"},
            ),
            Decision("V.A", "halving and doubling, over supernodes where named", {"reduce": "halving"}),
            Decision(
                "V.B",
                "one thread reads one batch ahead",
                {"readers": "parallel", "reader-threads": 1, "prefetch": 1},
            ),
        ),
    ),
}  # fmt: skip


def find(name: str) -> Preset:
    """Return the preset of that name. Raise ScaffeError for an unknown one."""
    if name not in PRESETS:
        raise ScaffeError(f"unknown preset '{name}'{near(name, PRESETS, 'known')}")
    return PRESETS[name]


def table() -> str:
    """Return all presets as a Markdown table: name, section of the paper, what the system does, flags."""
    lines = ["| preset | paper, section | what the system does | flags |", "|---|---|---|---|"]
    for name, preset in PRESETS.items():
        for one in preset.decisions:
            lines.append(f"| `{name}` | {preset.system}, {one.section} | {one.what} | `{one}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
