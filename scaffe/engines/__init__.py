"""Engines: who computes the heavy layers. Each registers its own forms of them beside the reference form."""

from __future__ import annotations

from functools import cache
from typing import Any

from scaffe.errors import EngineError, OnednnError
from scaffe.layers.layer import REFERENCE
from scaffe.monitor.log import log

ENGINES = ("auto", REFERENCE, "onednn")
COMPUTE = ("float32", "bf16")


def create(name: str, threads: int = 0, compute: str = "float32", gpu: Any = None) -> Any:
    """Return a net's engine, with so many threads; None for the reference forms.

    "auto" takes the fastest that is installed; on a `gpu` that is the kernels of engine cuda. `compute` "bf16" has
    it multiply bfloat16 numbers. Raise EngineError for an engine that is unknown, not there, or can't compute so.
    """
    if compute not in COMPUTE:
        raise EngineError(f"unknown kind of number '{compute}'; known ones: {' '.join(COMPUTE)}")
    if name not in ENGINES:
        raise EngineError(f"unknown engine '{name}'; known engines: {' '.join(ENGINES)}")
    if gpu is not None and compute != "float32":
        raise EngineError(f"on a GPU scaffe computes in float32 alone so far, not in {compute}; leave out --compute")
    if gpu is not None and name not in ("auto", REFERENCE):
        raise EngineError(f"engine {name} computes on the CPU, and a GPU was asked for; take --engine auto")
    if gpu is not None and name == "auto":
        from scaffe.engines import cuda

        _tell("Engine: cuda")
        return cuda.Engine(gpu)
    if name == REFERENCE or (name == "auto" and not _has_onednn()):
        if compute != "float32":
            raise EngineError(f"the reference forms compute in float32 alone, not in {compute}; take engine onednn")
        return None
    from scaffe.engines import onednn

    engine = onednn.Engine(threads, compute)
    _tell(f"Engine: {engine}")
    return engine


@cache
def _has_onednn() -> bool:
    """Say whether oneDNN can be loaded; if not, log why, once."""
    from scaffe.engines.onednn import library

    try:
        library.load()
    except OnednnError as error:
        _tell(f"Engine: {REFERENCE}, in numpy ({error})")
        return False
    return True


@cache
def _tell(text: str) -> None:
    log.info("%s", text)
