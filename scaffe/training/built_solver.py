"""BuiltSolver: what a solver consists of: nets, update rule, collectives and workflows; built, rebuilt and freed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from weakref import WeakSet, ref

import numpy as np

from collectives import Communicator
from collectives.loss import is_loss
from readers import Reading
from scaffe import solvers
from scaffe.choices import Choices
from scaffe.compute import Compute
from scaffe.files import snapshot
from scaffe.files.prefix_lock import PrefixLock
from scaffe.files.states import Origin
from scaffe.held import Together
from scaffe.monitor.log import log
from scaffe.monitor.record import RANKS
from scaffe.monitor.watching import Watching
from scaffe.net import Net
from scaffe.outputs import check_output
from scaffe.packed import aligned_zeros
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.host_watch import open_host_watch
from scaffe.parallel.instances.instance_nets import InstanceNets
from scaffe.parallel.instances.team import Team
from scaffe.parallel.maker import candidates, make_workflow
from scaffe.parallel.mirror import Mirror
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.run import Run
from scaffe.parallel.stall import StallWatch, open_watch
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.solvers import lr_policy
from scaffe.timeline import timeline as timelines
from scaffe.training import replay
from scaffe.training.auto_instances import AutoInstances
from scaffe.training.bad_records import BadRecords
from scaffe.training.carried import Carried
from scaffe.training.communicator import open_communicator
from scaffe.training.losses import Losses
from scaffe.training.monitor import Unwatched
from scaffe.training.nets import NetBuilder, agree_on, follow_first
from scaffe.training.norms import Norms
from scaffe.training.snapshots import Snapshots
from scaffe.training.solver_callbacks import CalledFunctions
from scaffe.training.undo import Undo
from scaffe.training.updates import Updates


class BuiltSolver:
    """The parts of a solver, whose settings `Solver.__init__` checks and sets.

    - `nets`: the train net of each of this rank's instances, `net` the first. `tests`: of each test net, a net for each
      instance, `test_nets` the first of each.
    - `rule`, `norms`, `statistics`, `losses`, `bad_records`, `snapshots`, `choices`: what belongs to the nets.
    - `trial`: the workflow of the next iteration, or several that are timed. `auto_instances`: the same for instances.
    - `called`: users' functions, once any rank has added one. `mirror`: of the root's state on its buddy, if asked for.
    - `former`: nets that others have replaced, but users hold.
    - `closed`: whether threads have ended and communicators are freed.
    """

    _broken: list[Communicator] = []  # noqa: RUF012  during a recovery: those that have lost ranks
    asked: Callable[[], Sequence[bool]]
    auto_instances: AutoInstances
    called: CalledFunctions | None
    choices: Choices
    closed: bool
    collectives: Communicator | None = None
    compute: Compute
    former: WeakSet[Net]
    iter: int
    lock: PrefixLock
    mirror: Mirror | None = None
    monitor = Unwatched()
    nets: list[Net] = []  # noqa: RUF012  replaced when built
    param: SolverParameter
    reading: Reading
    run: Run
    seed: int
    origin: Origin
    snapshots: Snapshots
    team: Team
    tests: list[list[Net]] = []  # noqa: RUF012
    tests_done: int
    timeline: timelines.Timeline | None
    trial = WorkflowTrial.without()
    watch: StallWatch | None = None
    watching: Watching
    world: World

    @property
    def held(self) -> Together:
        """The arrays of its nets' blobs that users hold."""
        return Together(net.held for net in self._users_nets())

    def _users_nets(self) -> list[Net]:
        """Return the nets that users see, or have seen."""
        return [self.net, *self.test_nets, *self.former]

    def _watch_host(self) -> None:
        """Notice stopped processes of this host from now on, where no watch over stalls is open. Not collective."""
        solver = ref(self)  # which the thread does not keep

        def is_watched(number: int) -> bool:
            one = solver()
            return one is not None and one.watch is not None and one.watch.watches(number)

        open_host_watch(self.world, self.watching, is_watched)

    def _build(self, carried: Carried | None = None) -> None:
        """Build all parts for the team, whose threads and the monitor's files end if that fails. Collective.

        With `carried` the train nets are to be given its parameters afterwards, and the rule has its history.
        """
        try:
            self._build_parts(carried)
        except BaseException as error:
            self.team.close()
            if not (self.run.shrinks and isinstance(error, Exception) and is_loss(error)):
                self.monitor.close()
            raise

    def _build_parts(self, carried: Carried | None) -> None:
        """Build nets, collectives, update rule and workflows, and begin to watch. Collective."""
        run, world = self.run, self.world
        given = self.compute, run.scaling, self.reading, self.choices, carried.layers if carried else ()
        builder = NetBuilder(self.param, world, self.team, self.seed, *given)
        world.together(lambda: self._build_train_nets(builder))
        agree_on(world, [self.net])
        self.instance_nets = self._instance_nets()
        with world.record.waiting(RANKS):
            self.collectives = open_communicator(world, run, self.net, self._broken if carried else None)
        world.together(lambda: self._build_rest(builder, carried))
        agree_on(world, self.test_nets)
        self.bad_records = BadRecords(self._all_nets(), self.reading)
        asked, newest = lambda: self._requests(), lambda: self.snapshots.newest(self.origin.run)
        self.losses = Losses(world, self.param, asked, self.bad_records, self.rule, newest)
        self.snapshots = Snapshots(
            self.param, world, self.nets, self.tests, self.rule, self.choices, self.lock, run.keep_snapshots,
            self.auto_instances.kept,
        )  # fmt: skip
        with world.record.waiting(RANKS):
            self._open_mirror()
            self.trial = self._make_workflows()
        if self.watch is not None:  # a rank was lost: the ranks that are left were watched up to here
            self.watch.abandon()
        self.watch = open_watch(world, self.collectives, [self.net, *self.test_nets], self.watching, self.team)
        if self.timeline:
            self.timeline.watch(self.nets, self.workflow, self.statistics, self.team)

    def _build_train_nets(self, builder: NetBuilder) -> None:
        """Build the train nets, without communication."""
        self.nets = builder.train_nets(self._allsums)
        self.net = self.nets[0]
        profile = self.compute.profile
        self.replay = replay.Replay(self.net, replay.load(profile)) if profile else None

    def _build_rest(self, builder: NetBuilder, carried: Carried | None) -> None:
        """Build the update rule and the test nets, without communication."""
        self.statistics = Statistics(self.world, self.nets)
        self.net.packed.pinned = True
        self.rule = solvers.create(self.param, self.net.packed, self.net.engine)
        if carried:
            self.rule.take(carried.history)
        self.undo = Undo(self.net.packed, self.rule) if self.run.shrinks else None
        self.norms = Norms(self.net.packed, self.param.iter_size)
        self.updates = Updates(self.net.packed)
        self.tests = builder.test_nets(self.net, lambda: self.tests_done)  # of each, a net for each instance
        self.test_nets = [nets[0] for nets in self.tests]
        if self.world.is_root:
            snapshot.check_writable(self.param)
            if self.watching.timeline:
                check_output("timeline", self.watching.timeline)

    def _instance_nets(self) -> InstanceNets | None:
        """Return how the instances sum their gradients, None for a single instance."""
        if self.team.size == 1:
            return None
        gather = self.auto_instances.present.gather
        return InstanceNets(self.team, self.nets, gather, self.compute.deterministic)

    def _allsums(self, values: Sequence[float]) -> np.ndarray:
        """Return sums of a layer's numbers over the ranks, whichever thread computes. Collective."""
        sums = self.workflow.sums
        return np.array(values) if sums is None else sums(values)

    def _make_workflows(self) -> WorkflowTrial:
        """Return the workflow of the run, or those to time. Collective."""
        given = self.world, self.collectives, self.net, self.update_bucket, self.rule
        runs = candidates(self.run, self.world, self.team, self.auto_instances.is_settled)
        others = self.instance_nets, self.called
        workflows = {name: make_workflow(run, *given, *others) for name, run in runs.items()}
        if late := {one.name for one in workflows.values() if one.updates_early and not one.parts.early}:
            log.info("%s updates once all sums are complete: --on-rank-loss shrink on one node", ", ".join(late))
        for workflow in workflows.values():
            if self.timeline:
                self.timeline.follow(workflow)
            workflow.aggregate.check = self._check_sums
            if self.mirror:
                workflow.drive.transfers = *workflow.drive.transfers, self.mirror
        return WorkflowTrial(workflows, self.world.allgather)

    def _check_sums(self) -> None:
        """Raise RankLostError where the sums of the gradients may lack a rank's part."""

    def _open_mirror(self) -> None:
        """Mirror the root's state among these ranks, if the run says so. Collective."""
        if self.run.mirror_every:
            self.mirror = self.mirror or Mirror(self.run.mirror_every)
            self.mirror.open(self.world, [self.net.packed.flat, *self.rule.history])

    def _forget_mirror(self) -> None:
        """Drop the mirror, since training goes on from other values. All ranks call it alike."""
        if self.mirror:
            self.mirror.forget()

    def _requests(self) -> Sequence[bool]:
        """Return this rank's requests, one for each of signals.ACTIONS."""
        return self.asked()

    # Computing.

    def update_bucket(self, bucket: Bucket) -> None:
        """Update the parameters of a bucket from their summed gradients, at the current rate. Not collective."""
        if self.undo and self.workflow.early:  # else no message can break the updates off
            self.undo.keep(bucket.part)
        if self.replay:
            self.replay.update(bucket.part)
        else:
            if self.norms.wanted:
                self.norms.add(bucket)
            if self.updates.wanted:
                self.updates.add(bucket)
            self.rule.update(bucket.parameters, self.rate(), self.iter, bucket.part)

    @property
    def workflow(self) -> Workflow:
        """The workflow of the next iteration."""
        return self.trial.workflow

    @property
    def propagate(self) -> Propagate:
        """How the root's parameters reach the other ranks."""
        return self.workflow.propagate

    def rate(self) -> float:
        """Return the learning rate of the current iteration, before any lr_mult."""
        return lr_policy.rate(self.param, self.iter)

    @property
    def lr(self) -> float:
        """The learning rate of the current iteration, before any lr_mult: pycaffe's name of `rate`."""
        return self.rate()

    def _is_test_due(self) -> bool:
        return bool(self.test_nets) and self.iter % self.param.test_interval == 0

    def _plan(self) -> None:
        """Choose kernels on the root, for all ranks, and bring all instances to where the first is. Collective."""
        nets = self.net, *self.test_nets
        self.choices.taken = self.world.on_root(lambda: self.choices.time(nets))
        self.statistics.spread()
        follow_first(self.nets)

    def _finish_snapshot(self) -> None:
        """Wait until the snapshot under way is written. Collective."""

    # Other instances.

    def _arrange(self) -> None:
        """Go on with other instances, if their trial or a snapshot says so. Collective."""
        auto = self.auto_instances
        if auto.is_settled:
            return
        before, now = auto.present, auto.next(self.net, self.team)
        if now.n != before.n:
            self._rebuild()
            gc.collect()  # the nets that were replaced, which refer to themselves
        elif now != before or auto.is_settled:
            self.trial.close()
            self.team.arrange(now)
            self.instance_nets = self._instance_nets()
            self.trial = self._make_workflows()

    def _rebuild(self) -> None:
        """Build new nets for other instances; they go on where the nets are. Collective."""
        self.losses.settle()
        self._finish_snapshot()
        self.propagate.sync()
        self._replace(Carried(self))

    def _replace(self, carried: Carried) -> None:
        """Give up all parts, and build them for the present instances, with what is carried over. Collective."""
        self._free()
        self.trial, self.collectives = WorkflowTrial.without(), None
        self.closed = True  # until all is built
        self.team = Team(self.world, self.auto_instances.present)
        self._build(carried)
        self.closed = False
        carried.give(self)
        self._plan()

    # The end.

    def _free(self) -> None:
        """End all threads, and free the communicators. Collective."""
        self._end_readers()
        with self.world.record.waiting(RANKS):  # for the last messages of others
            self.trial.close()
            if self.mirror:
                self.mirror.close()
        self.team.close()
        self.net.context.allsums = self.world.allsums  # the net may be used on
        self.net.packed.pinned = False
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        if self.collectives is not None:
            # Users' arrays over shared memory may be used on too.
            held = self.net.engine.in_host_memory and self.net.move_parameters(aligned_zeros)
            self.collectives.free(windows=not any(self.world.allgather(held)))

    def _abandon(self, moves: bool = True) -> None:
        """End all threads, and give up all communicators, as far as they are built: ranks are lost. Not collective.

        The watch goes on until another is open. With `moves` the parameters leave windows, whose memory is given back;
        else new nets may take them over.
        """
        self._end_readers()
        if "team" in vars(self):
            self.team.close()
        if self.nets:
            self.net.packed.pinned = False  # others take their place
        if self.collectives is not None:
            self.net.context.allsums = self.world.allsums  # the net may be used on
            in_windows = moves and self.net.engine.in_host_memory
            held = in_windows and self.net.move_parameters(aligned_zeros, gradients=False)
            self.collectives.abandon(windows=moves and not held)
            if not moves:
                self._broken = [*self._broken, self.collectives]
        self.trial, self.collectives = WorkflowTrial.without(), None

    def _give_back(self) -> None:
        """Give back the memory of windows that the new nets have not taken, unless users hold arrays there."""
        for comm in self._broken:
            held = any(net.sharing.is_held_in(memory) for net in self._users_nets() for memory in comm.node.memory)
            comm.abandon(windows=not held)
        self._broken = []

    def _end_readers(self) -> None:
        for net in self._all_nets():
            net.close()

    def _all_nets(self) -> list[Net]:
        """Return the nets of all instances."""
        return [*self.nets, *(net for nets in self.tests for net in nets)]
