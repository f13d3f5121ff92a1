"""Solver: the training loop: iterations, display, tests, snapshots."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from readers import Reading
from scaffe.blobs.held import Together, public
from scaffe.compute import Compute
from scaffe.files import weights
from scaffe.monitor.log import log
from scaffe.monitor.progress import progress
from scaffe.monitor.record import SET_UP
from scaffe.monitor.watching import Watching
from scaffe.net.net import Net
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.parallel.watch.process_table import watch_processes
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.setting import moved
from scaffe.training import default_compute, display, iterations, tests, update_lines
from scaffe.training.checkpoints import Checkpoints
from scaffe.training.collective import collective, retried
from scaffe.training.ending import Ending
from scaffe.training.job import Job
from scaffe.training.monitor import open_monitor
from scaffe.training.parts import Parts
from scaffe.training.recovery.choose import Recovery, choose
from scaffe.training.set_up import agreed
from scaffe.training.settings import Settings, moved_keywords
from scaffe.training.signals import ACTIONS
from scaffe.training.state_transfer import StateTransfer


class Solver:
    """Train the net of a solver file, together with the other ranks of `world`.

    `param` is the file or its fields, `world` the ranks, by default those of this job. The settings are records:

    - `compute` (scaffe.compute.Compute): how layers compute; without it scaffe.defaults count.
    - `run` (scaffe.parallel.run.Run): how ranks work together.
    - `instances` (scaffe.parallel.instances.instances.Instances): how a rank divides its work over threads.
    - `reading` (readers.Reading): how data layers read.
    - `watching` (scaffe.monitor.watching.Watching): what is recorded.

    `asked()`, an attribute to replace, returns for each of signals.ACTIONS whether this rank requests it; a request of
    any rank counts for all. pycaffe's attributes: `net`, `test_nets`, `iter`; the nets are replaced while instances
    that are "auto" are timed (see AutoInstances); `lr`, the rate of the current iteration. All methods but
    `add_callback` are collective: every rank calls them alike. From the start of training, or the first snapshot, to
    `close` no other job can write snapshots of this prefix (see PrefixLock). Raise ScaffeError, or an error derived
    from it, for what the user can correct.

    A solver has a `job`: how far it has come; `parts`: what is built anew for other ranks; `checkpoints`: its
    snapshots; and a `recovery`: what it does when a rank is lost.
    """

    world: World
    job: Job
    parts: Parts
    checkpoints: Checkpoints

    @moved(moved_keywords())
    def __init__(
        self,
        param: str | os.PathLike[str] | SolverParameter,
        *,
        world: World | None = None,
        compute: Compute | None = None,
        run: Run = Run(),  # noqa: B008  frozen
        instances: Instances = Instances(),  # noqa: B008
        reading: Reading = Reading(),  # noqa: B008
        watching: Watching = Watching(),  # noqa: B008
    ):
        self.asked: Callable[[], Sequence[bool]] = lambda: [False] * len(ACTIONS)
        self.failed_alone = False
        self.recovery: Recovery = choose(run, world)
        if self.recovery.world is not None:
            watch_processes(self.recovery.world, watching)
        self.recovery.begin()
        self.recovery.set_up(lambda: self._set_up(param, world, compute, (run, instances, reading, watching)))

    def _set_up(
        self,
        param: str | os.PathLike[str] | SolverParameter,
        world: World | None,
        given: Compute | None,
        records: tuple[Run, Instances, Reading, Watching],
    ) -> None:
        """Agree on all settings, and build all parts. Collective."""
        self.world, compute = default_compute.start(self.recovery.world or world, given)
        self.world.record.at(SET_UP)
        watching = records[-1]
        if self.recovery.world is None:
            watch_processes(self.world, watching)
        self.job = job = agreed(param, self.world, lambda: Settings(compute, *records))
        self.failed_alone = False
        self.monitor = open_monitor(self.world, job.param, watching)
        self.parts = parts = Parts(job, self.monitor, lambda: self.checkpoints.requests())
        self.checkpoints = Checkpoints(job, parts, lambda: self.asked())
        self.recovery.follow(job, parts, self.checkpoints, self.monitor)
        parts.build()
        job.patience.check(job.param, self.test_nets)
        parts.note_written()
        display.start(self.world, self.net, parts.instance_nets, job.run.scaling, job.param.iter_size, self.lr)
        update_lines.check(job.param, bool(job.compute.profile))

    # What users read.

    @property
    def param(self) -> SolverParameter:
        """The fields of the solver file."""
        return self.job.param

    @property
    def net(self) -> Net:
        """The train net of this rank's first instance."""
        return self.parts.net

    @property
    def nets(self) -> list[Net]:
        """The train net of each of this rank's instances."""
        return self.parts.nets

    @property
    def test_nets(self) -> list[Net]:
        """The test nets of this rank's first instance."""
        return self.parts.test_nets

    @property
    def iter(self) -> int:
        """The number of iterations that are done."""
        return self.job.iter

    @property
    def lr(self) -> float:
        """The learning rate of the current iteration, before any lr_mult."""
        return self.job.rate()

    @property
    def stopped(self) -> str:
        """The request that ended `solve` early, "stop" or "requeue"; else ""."""
        return self.job.stopped

    @property
    def held(self) -> Together:
        """The arrays of its nets' blobs that users hold."""
        return self.parts.held

    # Training.

    @collective
    def step(self, iterations: int) -> None:
        """Run `iterations`, with the displays, tests and snapshots of the solver file.

        At its start and at its end all ranks have the root's parameters.
        """
        last = self.iter + iterations
        self.recovery.part("begin", self._begin_step)
        self._last = last
        with progress(self.iter, last, self.world.is_root) as show:
            self.recovery.part("iterations", lambda: self._run_to_last(show))
        self.parts.note_written()

    def add_callback(self, on_start: Any, on_gradients_ready: Any = None) -> None:
        """Add two functions without arguments, or an object with methods of these names. Not collective.

        Every iteration calls `on_start` before its first forward pass, when all ranks have the root's parameters. What
        it writes into the root's parameters holds for all ranks. `on_gradients_ready` is called after the last
        backward pass, when all ranks have the sums of the gradients over the ranks, not yet clipped or divided by
        iter_size. Then the update follows, by the gradients as the functions leave them: on the root, and with
        `sync` "allreduce" on each rank, so that all ranks must make the same change.

        A callback may be added on some ranks alone. A workflow that updates early does not do so once any rank has
        one. A `SumOverRanks`, such as pycaffe's NCCL, is the place of the sums: functions added before it are called
        while gradients are summed, and read undefined gradients. Raise TypeError for anything else.
        """
        self.parts.callbacks.add(on_start, on_gradients_ready)

    @collective
    def apply_update(self) -> None:
        """Update the parameters by the gradients in `net`, summed over the ranks; `iter` stays, as in Caffe.

        Like an iteration it clips the sums, divides them by iter_size, and adds the weight decay. At its end all ranks
        have the root's parameters. Callbacks are not called. Raise ScaffeError where ranks have several instances,
        whose other nets a user's passes do not compute, and DivergedError where there is no learning rate.
        """
        self.parts.check_single()
        self.recovery.note_changed()
        self.parts.apply_update()

    def _begin_step(self) -> None:
        """Prepare iterations. Collective."""
        job, parts = self.job, self.parts
        if parts.was_written():
            parts.follow_users()
            self.recovery.note_changed()
        parts.take_callbacks()
        self.checkpoints.keep_prefix()
        parts.plan()
        job.shown = display.Shown(job.iter, time.monotonic())
        parts.losses.last.clear()
        self.monitor.go_on(parts)
        job.handled = job.told = job.iter
        job.tested, job.granted = -1, frozenset()

    def _run_to_last(self, show: Callable[[int], object]) -> None:
        """Run iterations up to the step's last, or until a request to stop, and complete what they began."""
        job, parts = self.job, self.parts
        while True:
            show(job.iter)
            if job.told != job.iter:
                iterations.tell(job, parts, self.recovery, self.monitor)
            if job.handled != job.iter:
                self._handle()
                if job.stopped:
                    parts.propagate.sync()
                    break
                job.handled, job.granted = job.iter, frozenset()
            if job.iter >= self._last:
                break
            if tests.is_due(job, parts) and (job.iter > 0 or job.param.test_initialization) and job.tested != job.iter:
                parts.losses.settle()
                with self.monitor.paused():
                    self.test_all()
                job.tested = job.iter
            before = job.iter
            self._iterate(ends=before + 1 == self._last)
            self._last += job.iter - before  # a user's function may have restored a snapshot
            if job.auto_instances.is_settled:
                parts.team.tell_places(parts.nets)
            job.iter += 1
        parts.losses.settle()
        self.checkpoints.finish()
        if parts.mirror:
            parts.mirror.finish()
        self.monitor.rest(parts)

    def _iterate(self, ends: bool) -> None:
        """Run an iteration; after one that `ends` a step all ranks have the root's parameters."""
        iterations.run(self.job, self.parts, self.recovery, self.monitor, self._rebuild, ends)

    def _rebuild(self) -> None:
        """Build new nets for other instances; they go on where the nets are. Collective."""
        self.parts.losses.settle()
        self.checkpoints.finish()
        self.parts.propagate.sync()
        self.recovery.replace(StateTransfer(self.parts))

    def _handle(self) -> None:
        """Snapshot if it is due or a rank requests it, and stop if a rank requests that."""
        job, losses = self.job, self.parts.losses
        job.granted = requests = losses.requests
        losses.requests = set()
        if job.is_snapshot_due() or requests & {"snapshot", "requeue"}:
            losses.settle()
            self.checkpoints.save_meanwhile() if job.run.snapshot_async else self.snapshot()
        job.stopped = next((request for request in ("requeue", "stop") if request in requests), "")

    @collective
    def solve(self, resume: str | os.PathLike[str] | None = None) -> None:
        """Train until max_iter, or until a signal stops it; snapshot, display and test at the end as Caffe does.

        A spare waits until it takes a lost rank's place; if the other ranks end before, its process ends with them.
        """
        p, recovery = self.param, self.recovery
        recovery.begin_solve()
        log.info("Training to iteration %d", p.max_iter)
        if self.world.is_root and not p.HasField("max_iter"):
            log.warning("max_iter is missing: no iteration is trained")
        log.info("Solving %s", self.net.name)
        log.info("Learning Rate Policy: %s", p.lr_policy)
        recovery.part("prefix", self.checkpoints.keep_prefix)
        if resume:
            self.restore(resume)
        self._train()
        while recovery.was_set_back and not self.stopped:
            self._train()
        log.info("Optimization stopped early." if self.stopped else "Optimization Done.")
        recovery.end_solve()

    def _train(self) -> None:
        """Train until max_iter, or until a signal stops it, and do what comes after. Collective."""
        recovery, start = self.recovery, time.perf_counter()
        self.step(max(0, self.param.max_iter - self.iter))
        recovery.was_set_back = recovery.was_set_back and recovery.is_skipping
        Ending(self, time.perf_counter() - start).run()

    # Single calls.

    @collective
    @retried("test")
    def test_all(self) -> None:
        """Run all test nets and log the means of their outputs, exact over the ranks."""
        tests.run(self.job, self.parts, self.monitor)

    @collective
    @retried("snapshot")
    def snapshot(self) -> str:
        """Write weights and solver state; return the state's path on all ranks."""
        return self.checkpoints.save()

    @collective
    @retried("restore")
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue where the snapshot was taken, or at the newest whole one of the prefix for the path "auto"."""
        if self.checkpoints.restore(path):
            self.recovery.note_restored()

    @collective
    @retried("bcast")
    def bcast(self) -> None:
        """Give all ranks the root's parameters."""
        self.parts.propagate.changed()
        self.parts.propagate.sync()

    @collective
    @retried("weights")
    def copy_weights(self, paths: Sequence[str]) -> None:
        """Start from the weights of these files, later ones over earlier ones."""
        self.world.on_root(lambda: weights.load_all(self.net, paths))
        self.parts.propagate.changed()
        self.parts.propagate.sync()

    def write_timeline(self) -> None:
        """Write the timeline up to now, if there is one. Raise SnapshotError where it can't be written. Collective."""
        self.parts.write_timeline()

    @public
    def close(self) -> None:
        """Write what is left to write, end all threads, free communicators, unlock the snapshot prefix. Collective.

        If the last call failed on this rank alone, only its threads end: the other ranks are elsewhere. Closing twice
        is allowed. Raise SnapshotError where the timeline can't be written.
        """
        self.checkpoints.close()
        if self.parts.closed:
            return
        self.monitor.close()
        if self.failed_alone:
            return self.parts.end_threads()
        self.parts.closed = True
        self.recovery.end(self.write_timeline)
        self.recovery.free()
        if not self.job.run.shrinks:  # else until the process ends, after the spares
            self.world.watch.remove(self.world.process_table)
