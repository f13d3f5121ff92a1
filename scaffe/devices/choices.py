"""Choices: which kernel does each piece of work, found by timing the kernels or given."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple, Protocol

from scaffe.compute import AUTO, FIXED, TIMED
from scaffe.files import plan_file
from scaffe.monitor.log import log

MARGIN = 0.93  # of the time of the fixed kernel: another one must stay below it to replace that one
RUNS = 3
HOPELESS = 1.3  # times as long as the best so far: not worth more runs


class Work(NamedTuple):
    """A piece of work of a layer.

    `time` returns the seconds of its kernels, the fixed one's first. `products` counts what it multiplies.
    `circumstances` are what the seconds depend on beside the work's name.
    """

    time: Callable[[], dict[str, float]]
    products: int = 0
    circumstances: str = ""


class Timed(Protocol):
    """A net, as far as its kernels are timed."""

    @property
    def times_kernels(self) -> bool:
        """Whether the mode "auto" times them."""

    @property
    def machine(self) -> str:
        """The device and libraries for which the user's file keeps what was timed; "" where none does."""

    def works(self) -> Iterator[Mapping[str, Work]]:
        """Iterate over each layer's pieces of work by name."""


class Choices:
    """Map pieces of work, each a line of text that names its kind and shapes, to the kernels that do them.

    `mode` is one of four:

    - "fixed": each engine's own rule, and whatever `taken` holds;
    - "timed": `time` adds what is missing;
    - "auto": for nets whose engine asks for it, taken from the user's file, or else timed within `budget` seconds, the
      largest work first; fixed for others;
    - a file: read, timed, and written where it did not have all (swCaffe section VI.A times its first two iterations).

    Only one rank times; the others get its `taken`. Raise PlanError for a file that is no plan.
    """

    def __init__(self, mode: str = AUTO, budget: float = inf):
        self.mode, self.budget, self.taken = mode, budget, dict[str, str]()
        if mode not in (AUTO, FIXED, TIMED) and os.path.exists(mode):
            self.taken = plan_file.read(mode)

    def of(self, work: str, fixed: str) -> str:
        """Return the kernel for that work: `fixed` where none was found to be better."""
        return self.taken.get(work, fixed)

    def time(self, nets: Iterable[Timed]) -> dict[str, str]:
        """Time the kernels of the work in the nets that has none yet, take the fastest, and return `taken`.

        The nets' values stay as they are.
        """
        nets = [net for net in nets if self.mode != FIXED and (self.mode != AUTO or net.times_kernels)]
        machine = next((net.machine for net in nets), "") if self.mode in (AUTO, TIMED) else ""
        kept = plan_file.Kept(machine)
        known, budget = (kept.read(), self.budget) if self.mode == AUTO else ({}, inf)
        start, old, new, late = time.perf_counter(), 0, dict[str, str](), 0
        for name, work in sorted(self._missing(nets).items(), key=lambda item: -item[1].products):
            key = f"{name}; {work.circumstances}"
            if key in known:
                self.taken[name], old = known[key], old + 1
            elif time.perf_counter() - start >= budget:
                late += 1
            elif way := self._fastest(name, work.time()):
                self.taken[name] = new[key] = way
        if new or old or late:
            said = [f"timed {len(new)} pieces of work in {time.perf_counter() - start:.1f} s"]
            said += [f"left {late} for lack of time"] * bool(late) + [f"found {old} in {kept.path}"] * bool(old)
            log.info("Plan: %s", ", ".join(said))
        if new and self.mode not in (AUTO, TIMED):
            plan_file.write(self.mode, self.taken)
        kept.add(new)
        return self.taken

    def _missing(self, nets: Iterable[Timed]) -> dict[str, Work]:
        """Return the work that has no kernel yet, that of the first net in which it is."""
        found = dict[str, Work]()
        for name, work in (item for net in nets for works in net.works() for item in works.items()):
            if name not in self.taken:
                found.setdefault(name, work)
        return found

    def _fastest(self, work: str, seconds: dict[str, float]) -> str:
        """Return the fastest kernel, "" where there is none; the first of them is the fixed one."""
        if not seconds:
            return ""
        fixed = next(iter(seconds))
        best = min(seconds, key=lambda way: seconds[way] * (MARGIN if way == fixed else 1))
        log.info("Plan: %s: %s, %s of %s's time", work, best, f"{seconds[best] / seconds[fixed]:.2f}", fixed)
        return best

    def lines(self) -> list[str]:
        """Return a line `work: way` for each choice."""
        return [f"{work}: {way}" for work, way in self.taken.items()]


def elapsed(run: Callable[[], object]) -> float:
    """Return the seconds until `run` has returned."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def seconds(
    run: Callable[[], object],
    best: float = float("inf"),
    measure: Callable[[Callable[[], object]], float] = elapsed,
) -> float:
    """Return the least time that `run` took, once run to warm up; one run where it is far slower than `best`."""
    run()
    taken = float("inf")
    for _ in range(RUNS):
        taken = min(taken, measure(run))
        if taken > HOPELESS * best:
            break
    return taken
