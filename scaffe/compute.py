"""Compute: by which engine, in which numbers and in how much memory a net computes."""

from __future__ import annotations

from dataclasses import dataclass

from scaffe.choices import AUTO
from scaffe.context import WORKSPACE_BYTES


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
