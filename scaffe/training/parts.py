"""Parts: what a solver has that is built anew for other ranks or instances: nets, update rule, workflows."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from weakref import WeakSet

import numpy as np

from collectives import Communicator, RankLostError
from collectives.loss import is_loss
from scaffe.blobs.held import Together
from scaffe.blobs.packed import aligned_zeros
from scaffe.errors import ScaffeError
from scaffe.files import snapshot
from scaffe.files.outputs import check_output
from scaffe.monitor.log import log
from scaffe.monitor.record import RANKS
from scaffe.net.net import Net
from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.instances.instance_nets import InstanceNets
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.team import Team
from scaffe.parallel.iteration import update
from scaffe.parallel.maker import candidates, make_workflow
from scaffe.parallel.mirror import Mirror
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.residuals import Residuals
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.watch.heartbeats import Heartbeats, open_watch
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.solvers.rule import Rule
from scaffe.timeline import timeline as timelines
from scaffe.timeline import trace
from scaffe.training import replay
from scaffe.training.bad_records import BadRecords
from scaffe.training.communicator import open_communicator
from scaffe.training.job import Job
from scaffe.training.losses import Losses
from scaffe.training.monitor import Unwatched
from scaffe.training.nets import NetBuilder, described, follow_first
from scaffe.training.snapshots import Snapshots
from scaffe.training.solver_callbacks import CalledFunctions, SolverCallbacks
from scaffe.training.state_transfer import StateTransfer
from scaffe.training.update import Update
from scaffe.training.written import Written


class Parts:
    """The nets of a job, and what belongs to them, for its present ranks and instances.

    - `nets`: the train net of each of this rank's instances, `net` the first. `tests`: of each test net, a net for each
      instance, `test_nets` the first of each. `replaced`: nets that others have replaced, but users hold.
    - `update`, `statistics`, `losses`, `bad_records`, `snapshots`: what belongs to the nets.
    - `team`: the instances' threads; `instance_nets`: how they sum their gradients, None for a single one.
    - `collectives`: over the ranks, None for one rank alone.
    - `trial`: the workflow of the next iteration, or several that are timed.
    - `callbacks`: this rank's functions of users. `called`: those of all ranks, once any has added one; `written`:
      whether users may have written parameters.
    - `mirror`: of the root's state on its buddy, if asked for.
    - `watch`: the probe of their ranks' records, None without one.
    - `closed`: whether threads have ended and communicators are freed.

    `requests()` returns this rank's requests, one for each of signals.ACTIONS. `monitor` ends if `build` fails.
    """

    def __init__(self, job: Job, monitor: Unwatched, requests: Callable[[], Sequence[bool]]):
        self.job, self.monitor, self._requests = job, monitor, requests
        self.snapshots: Snapshots
        self.nets: list[Net] = []
        self.tests: list[list[Net]] = []
        self.replaced: WeakSet[Net] = WeakSet()
        self.team = Team(job.world, job.auto_instances.present)
        limit = timelines.limit(job.world.size, self.team.size)
        self.timeline = timelines.Timeline(limit) if job.settings.watching.timeline else None
        self.collectives: Communicator | None = None
        self.trial = WorkflowTrial.without()
        self.callbacks, self.written = SolverCallbacks(), Written(job.world)
        self.called: CalledFunctions | None = None
        self.mirror = Mirror(job.run.mirror_every) if job.run.mirror_every else None
        self.watch: Heartbeats | None = None
        self.closed = False
        self._broken: list[Communicator] = []  # during a recovery: those that have lost ranks

    # What users and others read.

    @property
    def net(self) -> Net:
        """The train net of the first instance."""
        return self.nets[0]

    @property
    def test_nets(self) -> list[Net]:
        """Each test net of the first instance."""
        return [nets[0] for nets in self.tests]

    @property
    def users_nets(self) -> list[Net]:
        """The nets that users see, or have seen."""
        return [*self.nets[:1], *self.test_nets, *self.replaced]

    @property
    def held(self) -> Together:
        """The arrays of its nets' blobs that users hold."""
        return Together(net.held for net in self.users_nets)

    @property
    def rule(self) -> Rule:
        """How a gradient is turned into an update."""
        return self.update.rule

    @property
    def workflow(self) -> Workflow:
        """The workflow of the next iteration."""
        return self.trial.workflow

    @property
    def propagate(self) -> Propagate:
        """How the root's parameters reach the other ranks."""
        return self.workflow.propagate

    @property
    def values(self) -> list[np.ndarray]:
        """The parameters and the rule's history."""
        return [self.net.packed.flat, *self.rule.history]

    def lends_parameters(self) -> bool:
        """Return whether a user holds a parameter's array, into which layers of the user's own can write."""
        return any(net.held.holds_any(chain(*net.params.values()), "array") for net in self.users_nets)

    def note_written(self) -> None:
        """Note that what has written parameters until now was training itself."""
        self.written.note(self.users_nets)

    def was_written(self) -> bool:
        """Return whether users of any rank may have written parameters since then. Collective."""
        return self.written.by_users(self.users_nets)

    def follow_users(self) -> None:
        """Go on from parameters that users have written on the root. All ranks call it alike."""
        if self.mirror:
            self.mirror.forget()
        self.propagate.changed()

    def check_single(self) -> None:
        """Raise ScaffeError where a user's passes compute only one of several instances' nets."""
        if self.team.size > 1:
            raise ScaffeError(
                f"apply_update has the gradients of one instance, but each rank has {self.team.size}; "
                "give each rank one instance"
            )

    def apply_update(self) -> None:
        """Update the parameters by the gradients that lie in the nets; all ranks then have the root's. Collective."""
        if self.mirror:
            self.mirror.forget()
        self.job.rate()  # raises on all ranks, also on those that update nothing
        if self.was_written():
            self.propagate.changed()
        update(self.workflow)
        self.statistics.average()
        self.rule.look()
        self.propagate.sync()
        self.note_written()

    def write_timeline(self) -> None:
        """Write the timeline up to now, if there is one. Raise SnapshotError where it can't be written. Collective."""
        if self.timeline is not None:
            path, job = self.job.settings.watching.timeline, self.job
            about = {"run": asdict(job.run), "buckets": self.workflow.nbytes()}
            trace.write(job.world, path, self.timeline.spans(), about)
            log.info("Timeline in %s; scaffe timeline %s summarises it", path, path)

    # Building.

    def build(self, transfer: StateTransfer | None = None) -> None:
        """Build all parts for the team, whose threads and the monitor's files end if that fails. Collective.

        With `transfer` the train nets are to be given its parameters afterwards, and the rule has its history.
        """
        try:
            self._build_parts(transfer)
        except BaseException as error:
            self.team.close()
            if not (self.job.run.shrinks and isinstance(error, Exception) and is_loss(error)):
                self.monitor.close()
            raise

    def _build_parts(self, transfer: StateTransfer | None) -> None:
        """Build nets, collectives, update rule and workflows, and begin to watch. Collective."""
        job, run, world = self.job, self.job.run, self.job.world
        settings = job.settings
        given = job.compute, run.scaling, settings.reading, job.choices, transfer.layers if transfer else ()
        builder = NetBuilder(job.param, world, self.team, job.seed, *given)
        world.together(lambda: self._build_train_nets(builder), alike=lambda _: described([self.net]))
        self.instance_nets = self._instance_nets()
        with world.record.waiting(RANKS):
            self.collectives = open_communicator(world, run, self.net, self._broken if transfer else None)
        world.together(lambda: self._build_rest(builder, transfer), alike=lambda _: described(self.test_nets))
        self.bad_records = BadRecords(self._all_nets(), settings.reading)
        newest = lambda: self.snapshots.newest(job.origin.run)  # noqa: E731
        self.losses = Losses(world, job.param, self._requests, self.bad_records, self.rule, newest)
        sums = lambda: (workflow.aggregate for workflow in self.trial.workflows)  # noqa: E731
        self.residuals = Residuals(self.net.packed, self.collectives, run.keeps_residuals, sums)
        with world.record.waiting(RANKS):
            if self.mirror:
                self.mirror.open(world, self.values)
            self.trial = self._make_workflows()
        self.trial.on_choice = self.residuals.collect
        self.update.begin(self.workflow, transfer.buckets if transfer and transfer.history else None)
        self.snapshots = Snapshots(
            job.param, world, self.nets, self.tests, self.rule, self.update.history, self.residuals, job.choices,
            job.lock, run.keep_snapshots, job.auto_instances.kept,
        )  # fmt: skip
        if self.watch is not None:  # a rank was lost: the ranks that are left were watched up to here
            self.watch.abandon()
        watched = [self.net, *self.test_nets]
        self.watch = open_watch(world, self.collectives, watched, settings.watching, self.team)
        if self.timeline:
            self.timeline.watch(self.nets, self.workflow, self.statistics, self.team)

    def _build_train_nets(self, builder: NetBuilder) -> None:
        """Build the train nets, without communication."""
        self.nets = builder.train_nets(self._allsums)
        profile = self.job.compute.profile
        self.replay = replay.Replay(self.net, replay.load(profile)) if profile else None

    def _build_rest(self, builder: NetBuilder, transfer: StateTransfer | None) -> None:
        """Build the update and the test nets, without communication."""
        job = self.job
        self.statistics = Statistics(job.world, self.nets)
        self.net.packed.pinned = True
        self.update = Update(job, self.net, self.replay, lambda: self.workflow.early)
        if transfer and transfer.history:
            self.rule.take(transfer.history)
        self.tests = builder.test_nets(self.net, lambda: job.tests_done)
        if job.world.is_root:
            snapshot.check_writable(job.param)
            if job.settings.watching.timeline:
                check_output("timeline", job.settings.watching.timeline)

    def _instance_nets(self) -> InstanceNets | None:
        """Return how the instances sum their gradients, None for a single instance."""
        if self.team.size == 1:
            return None
        gather = self.job.auto_instances.present.gather
        return InstanceNets(self.team, self.nets, gather, self.job.compute.deterministic)

    def _allsums(self, values: Sequence[float]) -> np.ndarray:
        """Return sums of a layer's numbers over the ranks, whichever thread computes. Collective."""
        sums = self.workflow.sums
        return np.array(values) if sums is None else sums(values)

    def _make_workflows(self) -> WorkflowTrial:
        """Return the workflow of the run, or those to time. Collective."""
        job, world = self.job, self.job.world
        given = world, self.collectives, self.net, self.update, self.rule, self.instance_nets, self.called
        runs = candidates(job.run, world, self.team, job.auto_instances.is_settled)
        last = self.check_sums, self.residuals
        workflows = {name: make_workflow(run, *given, *last) for name, run in runs.items()}
        if late := {one.name for one in workflows.values() if one.updates_early and not one.parts.early}:
            log.info("%s updates once all sums are complete: --on-rank-loss shrink on one node", ", ".join(late))
        for workflow in workflows.values():
            if self.timeline:
                self.timeline.follow(workflow)
            if self.mirror:
                workflow.drive.transfers = *workflow.drive.transfers, self.mirror
        return WorkflowTrial(workflows, world.allgather)

    def _replace_workflows(self, instances: Instances | None = None) -> None:
        """Make the workflows anew, for other instances if they are given. Collective."""
        self.residuals.collect()
        self.trial.close()
        if instances is not None:
            self.team.arrange(instances)
            self.instance_nets = self._instance_nets()
        self.trial = self._make_workflows()
        self.trial.on_choice = self.residuals.collect
        self.update.follow(self.workflow)

    def check_sums(self) -> None:
        """Raise RankLostError where the sums of the gradients may lack a rank's part: MPI knows of a lost rank."""
        if self.job.run.shrinks and self.job.world.misses_any():
            raise RankLostError(f"a rank was lost in iteration {self.job.iter}")

    def take_callbacks(self) -> None:
        """Make the workflows anew once any rank has added a function. Collective."""
        if self.called is None and self.job.world.allsum(bool(self.callbacks)):
            self.called = CalledFunctions(self)
            self._replace_workflows()

    def plan(self) -> None:
        """Choose kernels on the root, for all ranks, and bring all instances to where the first is. Collective."""
        nets, choices = (self.net, *self.test_nets), self.job.choices
        choices.taken = self.job.world.on_root(lambda: choices.time(nets))
        self.statistics.spread()
        follow_first(self.nets)

    # Other instances, and other ranks.

    def arrange(self, rebuild: Callable[[], object]) -> None:
        """Go on with other instances, if their trial or a snapshot says so. Collective.

        `rebuild()` builds nets for another number of them.
        """
        auto = self.job.auto_instances
        if auto.is_settled:
            return
        before, now = auto.present, auto.next(self.net, self.team)
        if now.n != before.n:
            rebuild()
            gc.collect()  # the nets that were replaced, which refer to themselves
        elif now != before or auto.is_settled:
            self._replace_workflows(now)

    def replace(self, transfer: StateTransfer) -> None:
        """Free all parts, and build them for the present instances, with what is handed on. Collective."""
        self.residuals.collect()
        kept = self.residuals.kept
        self.free()
        self.trial, self.collectives = WorkflowTrial.without(), None
        self.rebuild(transfer)
        self.residuals.kept = kept
        self.plan()

    def rebuild(self, transfer: StateTransfer) -> None:
        """Build all parts for the present ranks and instances, in place of parts that were given up. Collective."""
        self.closed = True  # until all is built
        self.team = Team(self.job.world, self.job.auto_instances.present)
        self.build(transfer)
        self.closed = False
        transfer.give(self)

    # The end.

    def free(self) -> None:
        """End all threads, and free the communicators. Collective."""
        self._end_readers()
        with self.job.world.record.waiting(RANKS):  # for the last messages of others
            self.trial.close()
            if self.mirror:
                self.mirror.close()
        self.team.close()
        with self.job.world.record.waiting(RANKS):  # also where one has ended, and no watch gets its record
            self._free_memory()

    def _free_memory(self) -> None:
        """Free the communicators, and the windows that no user's array lies in. Collective."""
        world = self.job.world
        self.net.context.allsums = world.allsums  # the net may be used on
        self.net.packed.pinned = False
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        if self.collectives is not None:
            # Users' arrays over shared memory may be used on too.
            held = self.net.engine.in_host_memory and self.net.move_parameters(aligned_zeros)
            self.collectives.free(windows=not any(world.allgather(held)))

    def break_off(self) -> None:
        """End the waits of all ranks for these parts' messages, since a rank is lost. Not collective."""
        if self.collectives is not None:
            self.collectives.revoke()
        if self.mirror:
            self.mirror.break_off()
        for workflow in self.trial.workflows:
            workflow.break_off()

    def abandon(self, moves: bool = True) -> None:
        """End all threads, and give up all communicators, as far as they are built: ranks are lost. Not collective.

        The watch goes on until another is open. With `moves` the parameters leave windows, whose memory is given back;
        else new nets may take them over.
        """
        self._end_readers()
        self.team.close()
        if self.nets:
            self.net.packed.pinned = False  # others take their place
        if self.collectives is not None:
            self.net.context.allsums = self.job.world.allsums  # the net may be used on
            in_windows = moves and self.net.engine.in_host_memory
            held = in_windows and self.net.move_parameters(aligned_zeros, gradients=False)
            self.collectives.abandon(windows=moves and not held)
            if not moves:
                self._broken = [*self._broken, self.collectives]
        self.trial, self.collectives = WorkflowTrial.without(), None

    def give_back(self) -> None:
        """Give back the memory of windows that the new nets have not taken, unless users hold arrays there."""
        for comm in self._broken:
            held = any(net.sharing.is_held_in(memory) for net in self.users_nets for memory in comm.node.memory)
            comm.abandon(windows=not held)
        self._broken = []

    def end_threads(self) -> None:
        """End this rank's threads alone: the other ranks are elsewhere."""
        for workflow in self.trial.workflows:
            workflow.drive.close()
        self._end_readers()
        self.team.close()

    def _end_readers(self) -> None:
        for net in self._all_nets():
            net.close()

    def _all_nets(self) -> list[Net]:
        """Return the nets of all instances."""
        return [*self.nets, *(net for nets in self.tests for net in nets)]
