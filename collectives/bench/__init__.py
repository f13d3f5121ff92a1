"""The benchmark: latency of collectives, with the options and the output of the OSU microbenchmarks."""

from __future__ import annotations

from collectives.bench.latency import WrongNumbers, bench, main

__all__ = ["WrongNumbers", "bench", "main"]
