"""Solver: the training loop: iterations, display, tests, snapshots."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from readers import Reading
from scaffe.choices import Choices
from scaffe.compute import AUTO, Compute
from scaffe.debug_info import is_shown
from scaffe.errors import ScaffeError
from scaffe.files import snapshot, weights
from scaffe.files.states import Origin
from scaffe.held import public
from scaffe.monitor.log import log
from scaffe.monitor.progress import progress
from scaffe.monitor.record import FORWARD, SET_UP
from scaffe.monitor.spans import ITERATION, LOSS, WAIT
from scaffe.monitor.watching import Watching
from scaffe.net import Net
from scaffe.parallel.evaluate import means, run_batches
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.team import Team
from scaffe.parallel.iteration import forward, iterate, update
from scaffe.parallel.run import Run
from scaffe.parallel.world import World, open_world
from scaffe.proto import SolverParameter
from scaffe.setting import moved
from scaffe.solvers import lr_policy
from scaffe.timeline import timeline as timelines
from scaffe.timeline import trace
from scaffe.training import default_compute, display, updates
from scaffe.training.auto_instances import AutoInstances
from scaffe.training.collective import collective, lasting
from scaffe.training.monitor import open_monitor
from scaffe.training.ranks_left import check_shrink
from scaffe.training.settings import Settings, moved_keywords
from scaffe.training.signals import ACTIONS
from scaffe.training.snapshot_writer import SnapshotBudget
from scaffe.training.solver_callbacks import CalledFunctions, SolverCallbacks
from scaffe.training.solver_param import checked, chosen_seed, doubts
from scaffe.training.spare import SpareSolver, check_spares
from scaffe.training.written import Written

if TYPE_CHECKING:
    from tqdm import tqdm


class Solver(SpareSolver):
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
    """

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
        self.run, self.instances = run, instances
        self.reading, self.watching = reading, watching
        self._goes_on = isinstance(run, Run) and run.shrinks
        if self._goes_on:
            world = self.world = world or open_world()
            self._watch_host()
            if run.spares:
                self._set_aside()
            self._set_up_lasting(lambda: self._set_up(param, world, compute))
            self.world.start_spares()
        else:
            self._set_up(param, world, compute)

    def _set_up(
        self, param: str | os.PathLike[str] | SolverParameter, world: World | None, compute: Compute | None
    ) -> None:
        """Agree on all settings, and build all parts. Collective."""
        run, instances, watching = self.run, self.instances, self.watching
        self.world, self.compute = default_compute.start(world, compute)
        self.world.record.at(SET_UP)
        if not self._goes_on:  # else since the ranks know each other
            self._watch_host()
        self.param = self.world.together(lambda: self._checked(param))
        self.world.agree({"the solver": str(self.param)} | self.settings.agreed())
        for doubt in doubts(self.param) if self.world.is_root else ():
            log.warning("%s", doubt)
        compute = self.compute
        if compute.threads:
            self.world.together(lambda: self.world.take_threads(compute.threads))
        self.auto_instances = AutoInstances(self.world, instances, compute.deterministic)
        if compute.graphs == AUTO and (watching.timeline or compute.profile):  # which go layer by layer
            self.compute = replace(compute, graphs="off")
        self.choices = self.world.on_root(lambda: Choices(compute.plan, compute.plan_seconds))
        self.seed = chosen_seed(self.world, self.param)
        self.iter = self.tests_done = 0
        self.callbacks = SolverCallbacks()
        self.called: CalledFunctions | None = None
        self.stopped = ""  # the request that ended solve() early: "stop" or "requeue"
        self.lock = snapshot.lock(self.param.snapshot_prefix)
        self.former: WeakSet[Net] = WeakSet()  # nets that others have replaced, but users hold
        self.failed_alone = self.closed = False
        self.own_snapshots, self.origin = set(), Origin()
        self.budget = SnapshotBudget(run.snapshot_budget) if run.snapshot_budget and self.world.is_root else None
        self.team = Team(self.world, self.auto_instances.present)
        path, size = watching.timeline, self.world.size
        self.timeline = timelines.Timeline(timelines.limit(size, self.team.size)) if path else None
        self.monitor = open_monitor(self.world, self.param, watching)
        self._build()
        self.written = Written(self.world)
        self.written.note(self._users_nets())
        display.start(self.world, self.net, self.instance_nets, run.scaling, self.param.iter_size, self.rate())
        updates.check(self.param, bool(self.compute.profile))

    def _checked(self, param: str | os.PathLike[str] | SolverParameter) -> SolverParameter:
        """Return the solver's fields, all arguments checked. Raise ScaffeError for a wrong value."""
        self.settings = Settings(self.compute, self.run, self.instances, self.reading, self.watching)
        self.run.check_reduce()
        self.settings.check_broadcasts()
        self.settings.check_stall()
        self.settings.check_launch()
        check_shrink(self.world, self.run)
        check_spares(self.world, self.run)
        return checked(param)

    # Training.

    @collective
    def step(self, iterations: int) -> None:
        """Run `iterations`, with the displays, tests and snapshots of the solver file.

        At its start and at its end all ranks have the root's parameters.
        """
        last = self.iter + iterations
        self._lasting(self._begin_step)
        self._last = last
        with progress(self.iter, last, self.world.is_root) as bar:
            self._lasting(lambda: self._run_to_last(bar))
        self.written.note(self._users_nets())

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
        self.callbacks.add(on_start, on_gradients_ready)

    def _take_callbacks(self) -> None:
        """Make the workflows anew once any rank has added a function. Collective."""
        if self.called is None and self.world.allsum(bool(self.callbacks)):
            self.called = CalledFunctions(self)
            self.trial.close()
            self.trial = self._make_workflows()

    @collective
    def apply_update(self) -> None:
        """Update the parameters by the gradients in `net`, summed over the ranks; `iter` stays, as in Caffe.

        Like an iteration it clips the sums, divides them by iter_size, and adds the weight decay. At its end all ranks
        have the root's parameters. Callbacks are not called. Raise ScaffeError where ranks have several instances,
        whose other nets a user's passes do not compute, and DivergedError where there is no learning rate.
        """
        if self.team.size > 1:
            raise ScaffeError(
                f"apply_update has the gradients of one instance, but each rank has {self.team.size}; "
                "give each rank one instance"
            )
        self._forget_mirror()
        self.rate()  # raises on all ranks, also on those that update nothing
        if self.written.by_users(self._users_nets()):
            self.propagate.changed()
        self._has_all = False
        update(self.workflow)
        self.statistics.average()
        self.rule.look()
        self.propagate.sync()
        self.written.note(self._users_nets())

    def _begin_step(self) -> None:
        """Prepare iterations. Collective."""
        if self.written.by_users(self._users_nets()):
            self._forget_mirror()
            self.propagate.changed()
            self._has_all = False
        self._take_callbacks()
        self._keep_prefix()
        self._plan()
        self.shown = display.Shown(self.iter, time.monotonic())
        self.losses.last.clear()
        self.monitor.go_on(self)
        self.acted = self.told = self.iter
        self.tested, self.granting = -1, set()

    def _run_to_last(self, bar: tqdm[Any]) -> None:
        """Run iterations up to the step's last, or until a request to stop, and complete what they began."""
        p = self.param
        while True:
            bar.update(self.iter - bar.n)
            if self.told != self.iter:
                self._tell()
            if self.acted != self.iter:
                self._act()
                if self.stopped:
                    self.propagate.sync()
                    break
                self.acted, self.granting = self.iter, set()
            if self.iter >= self._last:
                break
            if self._is_test_due() and (self.iter > 0 or p.test_initialization) and self.tested != self.iter:
                self.losses.settle()
                with self.monitor.paused():
                    self.test_all()
                self.tested = self.iter
            before = self.iter
            self._iterate(ends=before + 1 == self._last)
            self._last += self.iter - before  # a user's function may have restored a snapshot
            if self.auto_instances.is_settled:
                self.team.tell_places(self.nets)
            self.iter += 1
        self.losses.settle()
        self._finish_snapshot()
        if self.mirror:
            self.mirror.finish()
        self.monitor.rest(self)

    def _tell(self) -> None:
        """Display and measure the iteration that is done, where that is due. Collective."""
        last = self.iter - 1
        displays, measures = self._is_display_due(last), self.monitor.is_due(last)
        if displays or measures:
            self.losses.settle()
            outputs = self.outputs if self.run.shrinks else display.train_outputs(self.world, self.nets)
        if displays:
            rate = lr_policy.rate(self.param, last)
            self.shown = display.iteration(self.net, last, self.losses.mean, outputs, rate, self.shown)
        if measures:
            self.monitor.measure(self, last, outputs)
        self.told = self.iter

    def _iterate(self, ends: bool) -> None:
        """Run an iteration; after one that `ends` a step all ranks have the root's parameters."""
        self._arrange()
        self._note_begun()
        if self.called is not None:
            self.called.start()
            if self.run.shrinks and self.mark.iter != self.iter:  # a function has restored a snapshot
                self._note_begun()
        record = self.world.record
        self.team.begin(self.iter)
        self.monitor.begin(self)
        self.rate()  # raises on all ranks where there is none, also on ranks that update nothing
        self.net.debug_info = self.param.debug_info and self._is_display_due(self.iter)
        self.updates.begin(self.net.debug_info and is_shown())
        run, start = iterate, time.perf_counter()
        agree: Callable[..., Any] = partial(self.losses.take, iteration=self.iter, at_once=self._tells_later())
        if self.timeline:
            run = self.timeline.timed(ITERATION, self.iter, run)
            agree = self.timeline.timed(WAIT, 0, agree, LOSS)
        with self.team.keep_forms(lasting=not self._lends_parameters()):
            run(self.workflow, *self._whole(agree), record)
        self.updates.tell()
        self._note_done()
        self.rule.look()
        if ends:
            self.propagate.sync()
        seconds = time.perf_counter() - start
        for decided in (self.workflow.took(), self.auto_instances.took(seconds), self.trial.took(seconds)):
            if decided:
                log.info("%s", decided)

    def _lends_parameters(self) -> bool:
        """Return whether a user holds a parameter's array, into which layers of the user's own can write."""
        return any(net.held.holds_any(blobs, "array") for net in self._users_nets() for blobs in net.params.values())

    def _act(self) -> None:
        """Snapshot if it is due or a rank requests it, and stop if a rank requests that."""
        self.granting = wishes = self.losses.wishes
        self.losses.wishes = set()
        if self._is_snapshot_due() or wishes & {"snapshot", "requeue"}:
            self.losses.settle()
            self._snapshot_meanwhile() if self.run.snapshot_async else self.snapshot()
        self.stopped = next((wish for wish in ("requeue", "stop") if wish in wishes), "")

    @collective
    def solve(self, resume: str | os.PathLike[str] | None = None) -> None:
        """Train until max_iter, or until a signal stops it; snapshot, display and test at the end as Caffe does.

        A spare waits until it takes a lost rank's place; if the other ranks end before, its process ends with them.
        """
        p = self.param
        self._stand_by()
        log.info("Training to iteration %d", p.max_iter)
        if self.world.is_root and not p.HasField("max_iter"):
            log.warning("max_iter is missing: no iteration is trained")
        log.info("Solving %s", self.net.name)
        log.info("Learning Rate Policy: %s", p.lr_policy)
        self._lasting(self._keep_prefix)
        if resume:
            self.restore(resume)
        self._train()
        while self.was_set_back and not self.stopped:
            self._train()
        log.info("Optimization stopped early." if self.stopped else "Optimization Done.")
        self.world.recruits = False

    def _train(self) -> None:
        """Train until max_iter, or until a signal stops it, and do what comes after. Collective."""
        start = time.perf_counter()
        self.step(max(0, self.param.max_iter - self.iter))
        seconds = time.perf_counter() - start
        self.was_set_back = self.was_set_back and self._is_skipping
        for part in (lambda: self._show_end(seconds), self._last_snapshot, self._final_loss, self._last_test):
            self._lasting(part)
            if self.was_set_back and not (self.stopped or self._is_skipping):  # the root is lost
                return
        self._lasting(self._finish_records)

    def _finish_records(self) -> None:
        self.bad_records.finish(self.world)

    def _show_end(self, seconds: float) -> None:
        display.end(self.world, self.nets, self.workflow, self.trial.iterations, seconds)

    def _last_snapshot(self) -> None:
        if self.param.snapshot_after_train and self.stopped != "requeue" and not self._is_snapshot_due():
            self.snapshot()

    def _last_test(self) -> None:
        if not self.stopped and self._is_test_due():
            self.test_all()

    def _final_loss(self) -> None:
        """Log the smoothed loss after the last update, as Caffe does. Raise DivergedError where it is not finite."""
        if self.stopped or not self.param.display or self.iter % self.param.display:
            return
        self.world.record.begin(self.iter)
        self.world.record.at(FORWARD)
        self.propagate.sync()
        loss = forward(self.workflow)
        self.statistics.average()
        self.rule.look()
        self.losses.take(loss, self.iter)
        self.losses.settle()
        log.info("Iteration %d, loss = %.6g", self.iter, self.losses.mean)

    def write_timeline(self) -> None:
        """Write the timeline up to now, if there is one. Raise SnapshotError where it can't be written. Collective."""
        if self.timeline is not None:
            path, about = self.watching.timeline, {"run": asdict(self.run), "buckets": self.workflow.nbytes()}
            trace.write(self.world, path, self.timeline.spans(), about)
            log.info("Timeline in %s; scaffe timeline %s summarises it", path, path)

    # Tests.

    @collective
    @lasting
    def test_all(self) -> None:
        """Run all test nets and log the means of their outputs, exact over the ranks."""
        self.propagate.sync()
        for k, nets in enumerate(self.tests):
            log.info("Iteration %d, Testing net (#%d)", self.iter, k)
            self.team.begin(self.iter, k + 1)
            mean = means(run_batches(nets, self.param.test_iter[k], self.world, self.team))
            if self.param.test_compute_loss:
                log.info("Test loss: %.6g", mean.loss)
            display.outputs("Test", nets[0], mean.outputs)
            self.monitor.tested(self.iter, k, mean.outputs)
        self.world.record.begin(self.iter)
        self.tests_done += 1

    @collective
    @lasting
    def bcast(self) -> None:
        """Give all ranks the root's parameters."""
        self.propagate.changed()
        self.propagate.sync()

    @collective
    @lasting
    def copy_weights(self, paths: Sequence[str]) -> None:
        """Start from the weights of these files, later ones over earlier ones."""
        self.world.on_root(lambda: weights.load_all(self.net, paths))
        self.propagate.changed()
        self.propagate.sync()

    @public
    def close(self) -> None:
        """Write what is left to write, end all threads, free communicators, unlock the snapshot prefix. Collective.

        If the last call failed on this rank alone, only its threads end: the other ranks are elsewhere. Closing twice
        is allowed. Raise SnapshotError where the timeline can't be written.
        """
        self.snapshots.writer.join()
        self.lock.release()
        self._keeps_prefix = False
        if self.closed:
            return
        self.monitor.close()
        if self.failed_alone:
            for workflow in self.trial.workflows:
                workflow.drive.close()
            self._end_readers()
            self.team.close()
            return
        self.closed = True
        self._end_lasting(self.write_timeline)
        self._free_lasting()
        if self.world.host_watch is not None and not self.run.shrinks:  # else until the process ends, after the spares
            self.world.host_watch.end()
