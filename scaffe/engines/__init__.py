"""Engines: each computes the layers of a net by its own forms of them, or else by the reference forms.

| engine | computes |
|---|---|
| reference.py: Reference | by the reference forms, in numpy: read this one first |
| onednn/: Onednn | on the CPU, by oneDNN |
| cuda/: Cuda | on a GPU, by cuBLAS, cuDNN and kernels of our own |
| cuda/: Cupy | on a GPU, by the reference forms |

Their base, scaffe.engine.Engine, says what a net asks of them. Nothing above this package knows which one it has.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache

from scaffe.compute import DEFAULT, Compute
from scaffe.defaults import default_gpu, get_defaults
from scaffe.devices.gpu import Gpu, local_rank
from scaffe.devices.threads import given_threads
from scaffe.engine import NO_GRAPHS, REFERENCE, Engine
from scaffe.engines.reference import Reference
from scaffe.errors import CallError, EngineError, OnednnError
from scaffe.monitor.log import log

AMPERE = 80  # compute capability 8.0


def create(compute: Compute = DEFAULT, gpu: Gpu | None = None) -> Engine:
    """Return a new engine for one net, on the `gpu` that devices.gpu.choose returned, or on the CPU.

    A Net takes it as its `engine`.

    "auto" takes the fastest that is installed; on a GPU those are the kernels of engine cuda. 0 threads are what
    OMP_NUM_THREADS says, or else OpenMP's own choice. Raise EngineError for an engine that is unknown, not there, or
    can't compute so, LaunchError for threads that make no sense.
    """
    threads = compute.threads or given_threads()
    if compute.profile:
        raise EngineError(f"{compute.numbers} takes the times of a profile: a Solver does, a Net alone computes")
    if (compute.device == "cuda" and gpu is None) or (compute.device == "cpu" and gpu is not None):
        raise EngineError(f"device {compute.device}, but the net has {gpu or 'no GPU'}; see scaffe.devices.gpu.choose")
    engine = _on_cpu(compute, threads) if gpu is None else _on_gpu(compute, gpu)
    engine.compute = compute
    return engine


def of(given: str | Engine | None, compute: Compute | None, of_context: Compute | None = None) -> Engine:
    """Return a net's engine: the one that is given to it, or a new one by its compute, its context's, or by default.

    The defaults, scaffe.defaults, also say where; `given` can name another engine than theirs. Raise CallError for an
    engine that has a net, or beside what says another.
    """
    if isinstance(given, Engine):
        if given.serves:
            raise CallError(f"an engine computes one net, and this one has {given.serves}; create another")
        if compute is not None:
            raise CallError("an engine has its own compute; give it to engines.create alone")
        return given
    if (found := of_context or compute) is None:
        found = get_defaults().compute
        return create(found if given is None else replace(found, engine=given), default_gpu())
    if given is not None:
        raise CallError(f"engine={given!r} beside a compute or a context; write compute=Compute(engine={given!r})")
    return create(found)


def _on_cpu(compute: Compute, threads: int) -> Engine:
    """Return an engine that computes on the CPU."""
    if compute.graphs == "on":
        raise EngineError(NO_GRAPHS)
    if compute.numbers == "tf32":
        raise EngineError("tf32 is a GPU's kind of number, and the net computes on the CPU; take float32 or bf16")
    if compute.engine == REFERENCE or (compute.engine == "auto" and not _has_onednn()):
        _check_reference(compute, "onednn")
        return Reference()
    from scaffe.engines.onednn import Onednn

    engine = Onednn(threads, compute.numbers)
    _announce(f"Engine: {engine}")
    return engine


def _on_gpu(compute: Compute, gpu: Gpu) -> Engine:
    """Return an engine that computes on a GPU."""
    if compute.engine not in ("auto", REFERENCE):
        raise EngineError(f"engine {compute.engine} computes on the CPU, and a GPU was asked for; take --engine auto")
    from scaffe.engines.cuda import Cuda, Cupy

    if compute.engine == REFERENCE:
        _check_reference(compute, "auto")
        if compute.graphs == "on":
            raise EngineError(NO_GRAPHS)
        return Cupy(gpu, compute)
    numbers = compute.numbers
    if numbers != "float32" and gpu.capability < AMPERE:
        raise EngineError(f"{gpu} has no {numbers} numbers, which came with compute capability 8.0; take float32")
    _announce("Engine: cuda" if numbers == "float32" else f"Engine: cuda, {numbers}")
    return Cuda(gpu, compute)


def _check_reference(compute: Compute, other: str) -> None:
    """Raise EngineError where the reference forms are asked for numbers that another engine has."""
    if compute.numbers != "float32":
        raise EngineError(
            f"the reference forms compute in float32 alone, not in {compute.numbers}; take engine {other}"
        )


@cache
def _has_onednn() -> bool:
    """Return whether oneDNN can be loaded; if not, warn, once a node, with what to install."""
    from scaffe.engines.onednn import library

    try:
        library.load()
    except OnednnError as error:
        level = logging.INFO if local_rank() else logging.WARNING
        log.log(level, "Engine: %s, in numpy, since no faster one is here: %s", REFERENCE, error)
        return False
    return True


@cache
def _announce(text: str) -> None:
    """Log a line once."""
    log.info("%s", text)
