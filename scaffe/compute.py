"""Compute: by which engine, in which numbers and in how much memory a net computes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from scaffe.errors import ScaffeError

ENGINES = ("auto", "reference", "onednn")
NUMBERS = ("float32", "tf32", "bf16")
AUTO, FIXED, TIMED = "auto", "fixed", "timed"  # plans; any other is a file
GRAPHS = "auto", "on", "off"  # record where that is possible, insist on it, never record
WORKSPACE_BYTES = 1 << 30


@dataclass(frozen=True)
class Compute:
    """How a net computes, on whichever device.

    `engine` is "auto", "reference" or "onednn"; `device` "auto", "cpu" or "cuda". Convolutions and inner products
    multiply `numbers`: "float32", "bf16", or "tf32" on a GPU; sums and parameters are float32. `threads` is the number
    of threads of a rank, 0 for OMP_NUM_THREADS or its share of the cores. `plan` says how an engine chooses among its
    kernels: "fixed", "timed", a file, or "auto", which is timed on a GPU and fixed on the CPU. `deterministic` allows
    only kernels whose results repeat bit for bit. On a GPU no kernel takes a workspace of more than `workspace_bytes`,
    and `graphs` ("auto", "on", "off") says whether runs of layers are recorded and repeated.
    """

    engine: str = "auto"
    device: str = "auto"
    numbers: str = "float32"
    threads: int = 0
    plan: str = AUTO
    deterministic: bool = False
    workspace_bytes: float = WORKSPACE_BYTES
    graphs: str = "auto"


DEFAULT = Compute()


def check_given(owner: str, compute: object, others: Collection[str]) -> None:
    """Raise ScaffeError where `owner`, a class, is given parts of `compute` as keywords, TypeError for any others."""
    if not isinstance(compute, Compute):
        raise ScaffeError(f"{owner} takes compute=scaffe.Compute(numbers={compute!r}), not compute={compute!r}")
    known = {field.name for field in fields(Compute)}
    for name in others:
        if name not in known:
            raise TypeError(f"{owner} got an unexpected keyword argument '{name}'")
        raise ScaffeError(
            f"{owner} takes compute=Compute({name}=...), not {name}=...: from scaffe.compute import Compute"
        )
