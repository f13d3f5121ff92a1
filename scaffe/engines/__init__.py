"""Engines: who computes the heavy layers. Each registers its own forms of them beside the reference form."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from scaffe.devices.gpu import local_rank
from scaffe.devices.threads import check_threads, given_threads
from scaffe.errors import EngineError, OnednnError
from scaffe.layers.layer import REFERENCE
from scaffe.monitor.log import log

ENGINES = ("auto", REFERENCE, "onednn")
COMPUTE = ("float32", "tf32", "bf16")
AMPERE = 80  # compute capability 8.0


def create(name: str, threads: int = 0, compute: str = "float32", gpu: Any = None) -> Any:
    """Return a net's engine, with so many threads; None for the reference forms.

    0 threads are what OMP_NUM_THREADS says, or OpenMP's own choice. "auto" takes the fastest that is installed; on a
    `gpu` that is the kernels of engine cuda. With `compute` "bf16" it multiplies bfloat16 numbers, on a GPU with "tf32"
    numbers of TensorFloat-32; sums stay float32. Raise EngineError for an engine that is unknown, not there, or can't
    compute so, LaunchError for threads that make no sense.
    """
    threads = check_threads(threads) or given_threads()
    if compute not in COMPUTE:
        raise EngineError(f"unknown kind of number '{compute}'; known ones: {' '.join(COMPUTE)}")
    if name not in ENGINES:
        raise EngineError(f"unknown engine '{name}'; known engines: {' '.join(ENGINES)}")
    if gpu is not None and name not in ("auto", REFERENCE):
        raise EngineError(f"engine {name} computes on the CPU, and a GPU was asked for; take --engine auto")
    if gpu is not None and name == "auto":
        from scaffe.engines import cuda

        if compute != "float32" and gpu.capability < AMPERE:
            raise EngineError(f"{gpu} has no {compute} numbers, which came with compute capability 8.0; take float32")
        _tell("Engine: cuda" if compute == "float32" else f"Engine: cuda, {compute}")
        return cuda.Engine(gpu, compute)
    if compute == "tf32" and gpu is None:
        raise EngineError("tf32 is a GPU's kind of number, and the net computes on the CPU; take float32 or bf16")
    if name == REFERENCE or (name == "auto" and not _has_onednn()):
        if compute != "float32":
            other = "onednn" if gpu is None else "auto"
            raise EngineError(f"the reference forms compute in float32 alone, not in {compute}; take engine {other}")
        return None
    from scaffe.engines import onednn

    engine = onednn.Engine(threads, compute)
    _tell(f"Engine: {engine}")
    return engine


@cache
def _has_onednn() -> bool:
    """Say whether oneDNN can be loaded; if not, warn, once a node, with what to install."""
    from scaffe.engines.onednn import library

    try:
        library.load()
    except OnednnError as error:
        level = logging.INFO if local_rank() else logging.WARNING
        log.log(level, "Engine: %s, in numpy, since no faster one is here: %s", REFERENCE, error)
        return False
    return True


@cache
def _tell(text: str) -> None:
    log.info("%s", text)
