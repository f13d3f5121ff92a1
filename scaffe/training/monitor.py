"""Monitor: the numbers of a run, measured at an interval and given to writers on the root."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Protocol

import numpy as np

from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_output
from scaffe.monitor import numbers
from scaffe.monitor.log import log
from scaffe.monitor.numbers import Numbers, Sample, Writer
from scaffe.monitor.watching import EVERY, Watching
from scaffe.monitor.writing import Writing
from scaffe.net.net import Net
from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.solvers import lr_policy
from scaffe.training import about, measured
from scaffe.training.losses import Losses
from scaffe.training.norms import Norms
from scaffe.training.settings import Settings
from scaffe.version import __version__

PICTURES = 10  # measurements between two pictures of the filters


class Updates(Protocol):
    """The update of buckets, as far as its numbers need it."""

    norms: Norms


class HowFar(Protocol):
    """A job, as far as its numbers need it."""

    world: World
    param: SolverParameter
    settings: Settings
    iter: int


class Trained(Protocol):
    """The parts of a solver, as far as their numbers need them."""

    nets: list[Net]
    trial: WorkflowTrial
    losses: Losses

    @property
    def job(self) -> HowFar:
        """What they train."""

    @property
    def net(self) -> Net:
        """The first of the nets."""

    @property
    def update(self) -> Updates:
        """The update of buckets."""


class Unwatched:
    """A monitor that measures nothing, for a run without writers."""

    def go_on(self, parts: Trained) -> None:
        """Begin or go on with iterations at the solver's. All ranks call it alike, as all of these methods."""

    def rest(self, parts: Trained) -> None:
        """Note that other work begins, which is no training."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context manager for work between iterations that is not counted as training."""
        yield

    def is_due(self, iteration: int) -> bool:
        """Return whether this iteration is measured."""
        return False

    def begin(self, parts: Trained) -> None:
        """Prepare for the solver's next iteration."""

    def measure(self, parts: Trained, iteration: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Measure the iteration that has ended, and write its numbers and the train net's outputs. Collective."""

    def tested(self, iteration: int, test_net: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Write the means of a test net's outputs."""

    def follow_root(self, parts: Trained) -> None:
        """Let the root, another rank than before, write from the solver's iteration on, and it alone. Collective."""

    def close(self) -> None:
        """Return once all is written."""


class Monitor(Unwatched):
    """Measure every `every`-th iteration; the rank that calls `open` writes the numbers where `watching` says.

    The first iteration of a run is measured too. Its speed and waits are left out, since kernels and memory are set up
    in it.
    """

    def __init__(self, every: int, watching: Watching):
        self.every, self._watching = every, watching
        self._writing: Writing | None = None
        self._counters = measured.Counters()
        self._at = -1  # the iteration at which training rests
        self._curves_end = -1  # the iteration before which the curves end
        self._is_paused = False
        self._set_up = -1  # the iteration in which kernels and memory are set up
        self._first = 0  # the first iteration of the interval
        self._seconds = self._since = 0.0  # of the interval, up to the time `since`
        self._images = self._measurements = 0
        self._begun: int | None = None

    def open(self) -> None:
        """Write on this rank, the root. Raise ScaffeError where it can't write there."""
        if self._watching.metrics:
            check_output("metrics", self._watching.metrics)
        self._write(_writers(self._watching, at_once=True))

    def _write(self, writers: Sequence[Writer]) -> None:
        self._writing = Writing(writers)
        self._end = weakref.finalize(self, self._writing.close)  # also where a user never closes the solver

    def follow_root(self, parts: Trained) -> None:
        """Let the root write, and no other rank; a new interval begins. What the root can't write is logged."""
        if not parts.job.world.is_root:
            self.close()
        self._images = max(parts.job.world.allgather(self._images))  # by then a former root's files are closed
        if parts.job.world.is_root and self._writing is None:
            text = "The numbers for TensorBoard and Prometheus go on at iteration %d, written on %s"
            log.info(text, parts.job.iter, parts.job.world.host)
            self._measurements = 0
            self._write(_writers(self._watching, at_once=False))
        self._at = self._curves_end = -1
        self.go_on(parts)

    def go_on(self, parts: Trained) -> None:
        """Go on with the interval, or begin one where the solver is at another iteration than it rested at."""
        self._go_on_at(parts.job.iter)
        if parts.job.iter != self._at:
            self._first = self._set_up = parts.job.iter
            self._seconds = 0.0
            self._look(parts, 0.0)
        self._since = perf_counter()

    def rest(self, parts: Trained) -> None:
        """Count no time until training goes on."""
        self._seconds += perf_counter() - self._since
        self._at = self._curves_end = parts.job.iter

    def _go_on_at(self, iteration: int) -> None:
        if iteration != self._curves_end:
            self._begun = self._curves_end = iteration

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count no time within the block."""
        self._seconds += perf_counter() - self._since
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
        self._since = perf_counter()

    def is_due(self, iteration: int) -> bool:
        """Return whether this iteration is measured."""
        return iteration % self.every == 0

    def begin(self, parts: Trained) -> None:
        """Add up the norms of the next iteration if it is measured."""
        if self.is_due(parts.job.iter):
            parts.update.norms.begin()

    def measure(self, parts: Trained, iteration: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Gather what the ranks measured since the last measurement, and give it to the writers. Collective.

        The norms of an iteration after which the nets were built anew are left out.
        """
        now, iterations = perf_counter(), iteration + 1 - self._first
        mine = self._look(parts, self._seconds + now - self._since)
        ranks = parts.job.world.allgather(mine)
        norms = parts.update.norms.take()
        self._first, self._seconds, self._since = iteration + 1, 0.0, perf_counter()
        images = iterations * parts.job.param.iter_size * (parts.net.context.total_rows or 0)
        self._images += images
        if self._writing is None:
            return
        samples = [
            *self._state(parts, iteration),
            *measured.of_outputs(numbers.TRAIN_OUTPUT, outputs),
            *measured.of_norms(*norms),
        ]
        if iteration > self._set_up:
            samples += measured.of_speed(mine.seconds, iterations, images)
            samples += measured.of_ranks(ranks, iterations)
        self._put(self._with_extras(Numbers(iteration, samples), parts))

    def _look(self, parts: Trained, seconds: float) -> measured.Interval:
        return self._counters.since(parts.trial.workflows, parts.losses, parts.nets, seconds)

    def _state(self, parts: Trained, iteration: int) -> list[Sample]:
        values = {
            numbers.ITERATION: iteration,
            numbers.MAX_ITERATIONS: parts.job.param.max_iter,
            numbers.LOSS: parts.losses.mean,
            numbers.ITERATION_LOSS: parts.losses.last[-1],
            numbers.RATE: lr_policy.rate(parts.job.param, iteration),
            numbers.IMAGES: self._images,
        }
        info = {"net": parts.net.name, "version": __version__, "ranks": str(parts.job.world.size)}
        return [Sample(numbers.INFO, 1, info), *(Sample(metric, value) for metric, value in values.items())]

    def _with_extras(self, found: Numbers, parts: Trained) -> Numbers:
        """Return the numbers, with texts and the net's graph the first time, and with the filters now and then."""
        if not self._measurements % PICTURES:
            found = found._replace(pictures=about.first_filters(parts.net))
        if not self._measurements:
            found = found._replace(
                pictures={**found.pictures, "net": about.drawing(parts.net)},
                texts=about.texts(parts.job.param, parts.job.settings, parts.job.world, parts.net),
                nodes=about.nodes(about.without_splits(parts.net.param)),
            )
        self._measurements += 1
        return found

    def tested(self, iteration: int, test_net: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Give the means of a test net's outputs to the writers."""
        if not self._is_paused:  # a user tests, for example after `restore` and before `step`
            self._go_on_at(iteration)
        if self._writing is not None:
            label = {"test_net": str(test_net)}
            samples = measured.of_outputs(numbers.TEST_OUTPUT, outputs, **label)
            self._put(Numbers(iteration, [Sample(numbers.TEST_ITERATION, iteration, label), *samples]))

    def _put(self, found: Numbers) -> None:
        assert self._writing is not None
        self._writing.put(found._replace(begun=self._begun))
        self._begun = None

    def close(self) -> None:
        """Return once the writers have written all and are closed; does nothing the second time."""
        if self._writing is not None:
            self._end()
            self._writing = None


def open_monitor(world: World, param: SolverParameter, watching: Watching) -> Unwatched:
    """Return the monitor that the settings ask for. Collective.

    Raise ScaffeError, on all ranks, where the root can't write there.
    """
    if not watching.measures:
        return Unwatched()
    monitor = Monitor(watching.measure_every or param.display or EVERY, watching)
    world.on_root(lambda: None if world.is_spare else monitor.open())
    return monitor


def _writers(watching: Watching, at_once: bool) -> list[Writer]:
    """Return the writers that the settings ask for, which open their files `at_once`, or for the first numbers."""
    from scaffe.monitor.event_file import EventFiles
    from scaffe.monitor.prometheus import PrometheusFile

    writers: list[Writer] = []
    try:
        if watching.metrics:
            writers.append(PrometheusFile(watching.metrics, at_once))
        if watching.tensorboard:
            writers.append(files := EventFiles(watching.tensorboard, at_once))
            if at_once and files.has_curves:
                text = "%s: has curves of an earlier run; from the first iteration on this run's replace them"
                log.info(text, files.name)
    except ScaffeError:
        for one in writers:
            one.close()
        raise
    return writers
