"""Solver: owns the training loop: iterations, display, tests, snapshots."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from collectives import Communicator
from collectives.schedules.algorithms import with_chain_size
from readers import Settings
from scaffe import solvers
from scaffe.choices import AUTO, Choices
from scaffe.context import TEST, TRAIN, WORKSPACE_BYTES, Context
from scaffe.errors import AgreedError, ScaffeError
from scaffe.files import snapshot, weights
from scaffe.held import Together, public
from scaffe.monitor.log import log
from scaffe.monitor.progress import progress
from scaffe.monitor.record import SNAPSHOT
from scaffe.monitor.spans import ITERATION, LOSS, WAIT
from scaffe.net import Net
from scaffe.packed import aligned_zeros
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.evaluate import batch_numbers, means, run_batches
from scaffe.parallel.iteration import iterate
from scaffe.parallel.maker import make_workflow
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.run import Run
from scaffe.parallel.scatter import scatter
from scaffe.parallel.stall import StallWatch, check_seconds
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import World, open_world
from scaffe.proto import NetParameter, SolverParameter, numbers
from scaffe.proto.files import read_solver
from scaffe.solvers import lr_policy
from scaffe.timeline import timeline as timelines
from scaffe.timeline import trace
from scaffe.training import display, replay, solver_nets
from scaffe.training.bad_records import BadRecords
from scaffe.training.losses import Losses
from scaffe.training.signals import ACTIONS

SCALINGS = ("strong", "weak")
P = ParamSpec("P")
Result = TypeVar("Result")


def collective(method: Callable[Concatenate[Solver, P], Result]) -> Callable[Concatenate[Solver, P], Result]:
    """Let a method be a public call, until `close`, and note an error that this rank alone has."""

    @wraps(method)
    def call(self: Solver, *args: P.args, **kwargs: P.kwargs) -> Result:
        if self._closed and self.collectives is not None:
            raise AgreedError("the solver is closed, and its ranks' communicators are given back; make another")
        try:
            result = method(self, *args, **kwargs)
        except BaseException as error:
            self._failed_alone = not self.world.is_alike(error)
            raise
        self._failed_alone = False
        return result

    return public(call)


class Solver:
    """Train the net of a solver file, together with the other ranks of `world`.

    `scaling` "strong" divides the batch over the ranks, "weak" gives each rank the whole of it. `keep_snapshots` N
    removes all complete snapshots but the newest N (0 keeps all). `asked()` returns for each of signals.ACTIONS whether
    this rank was asked for it; any rank's wish counts for all. `allow_python_layers` lets the nets' Python layers run
    code. `threads` is how many a rank computes with; 0 for what OMP_NUM_THREADS says, or else its share of the cores it
    is bound to. `compute` "bf16" has convolutions and inner products multiply bfloat16 numbers, "tf32" on a GPU those
    of TensorFloat-32; parameters stay float32; "replay:FILE" has layers take the times of a profile and compute
    nothing. `plan` says how the engine's ways to compute are chosen: "fixed" by the engine's rule; "timed" before the
    first iteration; a file to read, and to write once timed; "auto" is timed on a GPU and fixed, which repeats a run
    bit for bit, on the CPU. `deterministic` has a GPU repeat runs too: only ways whose results are always the same, and
    "auto" is fixed. On a GPU no way of computing works in more than `workspace_bytes` of memory. `keep_diffs` keeps the
    gradients of all blobs after an iteration, not those of parameters alone, and on a GPU the values of test nets'
    blobs, which takes more memory. `graphs` says whether a GPU records runs of layers and repeats the recordings:
    "auto", "on" or "off". `run` says when and by which collectives parameters and gradients travel.
    `timeline` is a file to write at `close`: what each rank's threads did when, in Chrome's trace format, for the last
    iterations (timeline.timeline.LIMIT spans a rank). A rank that waits for the others for `stall_seconds`
    (0: never) logs which are missing and what these were last seen doing; with `stall_abort` it ends the job.

    From the start of training, or the first snapshot, to `close` no other job can write snapshots of this prefix: see
    PrefixLock.

    pycaffe's attributes: `net`, `test_nets`, `iter`. All methods are collective: every rank calls them alike.
    Raise ScaffeError, or what is below it, for whatever the user can mend.
    """

    def __init__(
        self,
        param: str | os.PathLike | SolverParameter,
        *,
        world: World | None = None,
        scaling: str = "strong",
        engine: str = "auto",
        keep_snapshots: int = 0,
        allow_python_layers: bool = False,
        threads: int = 0,
        compute: str = "float32",
        plan: str = AUTO,
        deterministic: bool = False,
        workspace_bytes: float = WORKSPACE_BYTES,
        keep_diffs: bool = False,
        graphs: str = "auto",
        run: Run | None = None,
        reading: Settings | None = None,
        timeline: str | os.PathLike | None = None,
        stall_seconds: float = 60,
        stall_abort: bool = False,
        asked: Callable[[], Sequence[bool]] = lambda: [False] * len(ACTIONS),
    ):
        self.world = world or open_world()
        if threads:
            self.world.together(lambda: self.world.take_threads(threads))
        self.scaling, self.engine, self.keep_snapshots, self.asked = scaling, engine, keep_snapshots, asked
        self.allow_python_layers = allow_python_layers
        self.replay: replay.Replay | None = None
        self.keep_diffs, self.run, self.reading = keep_diffs, run or Run(), reading or Settings()
        watched = timeline or compute.startswith(replay.PREFIX)  # layer by layer
        self.graphs = "off" if watched and graphs == "auto" else graphs
        self.stall_seconds, self.stall_abort = stall_seconds, stall_abort
        self.deterministic, self.workspace_bytes = deterministic, workspace_bytes
        self.compute, self.choices = compute, self.world.on_root(lambda: Choices(plan))
        self.param = self.world.together(lambda: self._load(param))
        self.world.agree(
            {
                "the solver": str(self.param),
                "the scaling": scaling,
                "the run's settings": str(self.run),
                "the reading": str(self.reading),
                "the stall settings": f"{stall_seconds:g} s, abort: {stall_abort}",
            }
        )
        self.seed = self._choose_seed()
        self.iter = 0
        self.lock = snapshot.lock(self.param.snapshot_prefix)
        self._keeps_prefix = False
        self.timeline_path = timeline
        self.timeline = timelines.Timeline(timelines.limit(self.world.size)) if timeline else None
        self._touched = self._failed_alone = self._closed = False
        self.stopped = ""  # what asked solve() to end early: "stop" or "requeue"
        self.tests_done = 0
        self.world.together(self._build_train_net)
        self._agree_on([self.net])
        self.collectives = self._open_collectives()
        self.world.together(self._build)
        self._agree_on(self.test_nets)
        self.bad_records = BadRecords([self.net, *self.test_nets], self.reading)
        self.losses = Losses(self.world, self.param, self.asked, self.bad_records, self.net, self.rule)
        self.trial = self._make_workflows()
        self.watch = self._open_watch()
        if self.timeline:
            self.timeline.watch(self.net, self.workflow, self.statistics)
            for workflow in self.trial.workflows:
                self.timeline.follow(workflow)
        self._versions = self._parameter_versions()
        display.start(self)

    # Set-up.

    def _load(self, param: str | os.PathLike | SolverParameter) -> SolverParameter:
        """Return the solver's fields, all arguments checked. Raise ScaffeError where one makes no sense."""
        if self.scaling not in SCALINGS:
            raise ScaffeError(f"unknown scaling '{self.scaling}'; known scalings: {' '.join(SCALINGS)}")
        if self.keep_snapshots < 0:
            raise ScaffeError(f"keep_snapshots must be 0 or more, got {self.keep_snapshots}")
        if self.workspace_bytes < 0:
            raise ScaffeError(f"workspace_bytes must be 0 or more, got {self.workspace_bytes}")
        check_seconds(self.stall_seconds)
        self.run.check_reduce()
        param = param if isinstance(param, SolverParameter) else read_solver(param)
        _check(param)
        return param

    def _choose_seed(self) -> int:
        """Return the solver file's seed, or one drawn by the root and shared."""
        if self.param.random_seed >= 0:
            return self.param.random_seed
        seed = self.world.comm.bcast(int.from_bytes(os.urandom(4), "big") >> 1, self.world.root)
        log.info("Random seed %d: drawn, since the solver sets none; random_seed: %d repeats this run", seed, seed)
        return seed

    def _build_train_net(self) -> None:
        """Build the train net, without communication."""
        world = self.world
        context = Context(TRAIN, np, self.seed, world.rank, world.size, self.scaling, gpu=world.gpu)
        if world.size > 1:
            context.allsums = self._allsums
        self._equip(context)
        if self.reading.readers == "single" and world.size > 1:
            context.scatter = partial(scatter, world)
        self.net = Net(solver_nets.train_net(self.param), context=context, engine=self.engine)
        self.net.keep_diffs = self.keep_diffs
        if self.compute.startswith(replay.PREFIX):
            self.replay = replay.Replay(self.net, replay.load(self.compute.removeprefix(replay.PREFIX)))

    def _allsums(self, values: Sequence[float]) -> np.ndarray:
        """Return sums of a layer's numbers over the ranks, whichever thread computes. Collective."""
        sums = self.workflow.sums
        return np.array(values) if sums is None else sums(values)

    def _open_collectives(self) -> Communicator | None:
        """Return the collectives over the ranks, with the parameters where these are fastest. Collective."""
        if self.world.size == 1:
            return None
        gpu = self.world.gpu
        comm = Communicator(self.world.comm, device=gpu and gpu.device, supernodes=self.run.supernodes)
        if gpu is None and comm.shape.nodes < comm.size and self.run.reduce.startswith(("auto", "slices", "leaders")):
            if comm.has_room(2 * self.net.packed.nbytes):
                self.net.move_parameters(comm.empty)
            else:
                log.info("Parameters stay in each rank's own memory: a node's shared memory (/dev/shm) has no room")
        if self.run.supernodes:
            algorithm = with_chain_size(self.run.reduce, self.run.chain_size or None)
            log.info("Supernodes: %s", comm.explain(self.run.collective, self.net.packed.nbytes, algorithm=algorithm))
        return comm

    def _make_workflows(self) -> WorkflowTrial:
        """Return the workflow that the run names, or those to choose from. Collective."""
        given = self.world, self.collectives, self.net, self._update, self.rule
        candidates = self.run.candidates if self.collectives else {"alone": self.run}
        workflows = {name: make_workflow(run, *given) for name, run in candidates.items()}
        return WorkflowTrial(workflows, self.world.allgather)

    def _open_watch(self) -> StallWatch | None:
        """Return the stall watchdog, None on a single rank or with stall_seconds 0. Collective."""
        if self.collectives is None or not self.stall_seconds:
            return None
        node = self.collectives.node.comm
        return StallWatch(self.world, node, [self.net, *self.test_nets], self.stall_seconds, self.stall_abort)

    def _build(self) -> None:
        """Build the update rule and the test nets, without communication."""
        self.statistics = Statistics(self.world, self.net.packed, self.net.context.share)
        self.net.packed.pinned = True
        self.rule = solvers.create(self.param, self.net.packed, self.net.context.engine)
        self.test_nets = [
            self._test_net(net, iterations)
            for net, iterations in zip(solver_nets.test_nets(self.param), self.param.test_iter, strict=True)
        ]
        if self.world.is_root:
            snapshot.check_writable(self.param)
            if self.timeline_path:
                trace.check_writable(self.timeline_path)

    def _test_net(self, param: NetParameter, iterations: int) -> Net:
        """Build a test net over the train net's parameters."""
        numbers = batch_numbers(self.world, iterations, lambda: self.tests_done)
        context = Context(TEST, seed=self.seed, batch_numbers=numbers, gpu=self.world.gpu)
        self._equip(context)
        net = Net(param, context=context, engine=self.engine)
        net.share_with(self.net)
        net.keep_data = self.keep_diffs
        return net

    def _equip(self, context: Context) -> None:
        """Let a net compute as was asked."""
        context.threads, context.choices = self.world.threads, self.choices
        context.deterministic, context.workspace_bytes = self.deterministic, self.workspace_bytes
        context.reading, context.spare_cores = self.reading, self.world.spare_cores
        context.compute = "float32" if self.compute.startswith(replay.PREFIX) else self.compute
        context.graphs = self.graphs
        context.allow_python_layers, context.file_mark = self.allow_python_layers, self.world.file_mark

    def _agree_on(self, nets: Sequence[Net]) -> None:
        """Raise an error on all ranks unless they have built the same nets: files may differ between nodes."""
        parameters = [parameter for net in nets for parameter in net.parameters]
        self.world.agree({"the parameters": "\n".join(f"{p.label} {p.blob.shape}" for p in parameters)})
        self.world.agree({"the nets": "\n".join(str(net.param) for net in nets)})

    @property
    def held(self) -> Together:
        """The arrays of all its nets' blobs that are in users' hands."""
        return Together(net.held for net in (self.net, *self.test_nets))

    # Training.

    @collective
    def step(self, iterations: int) -> None:
        """Run so many iterations, with displays, tests and snapshots as the solver file asks.

        It begins, and ends, with the root's parameters on all ranks.
        """
        self._share()
        self._run(iterations)
        self._versions = self._parameter_versions()

    def _run(self, iterations: int) -> None:
        p = self.param
        self._keep_prefix()
        self._plan()
        shown = self.iter, time.monotonic()
        self.losses.last.clear()
        with progress(self.iter, self.iter + iterations, self.world.is_root) as bar:
            for left in reversed(range(iterations)):
                if self._is_test_due() and (self.iter > 0 or p.test_initialization):
                    self.losses.settle()
                    self.test_all()
                shows = p.display > 0 and self.iter % p.display == 0
                self._iterate(ends=not left)
                if shows:
                    self.losses.settle()
                    shown = display.iteration(self, *shown)
                self.iter += 1
                bar.update()
                self._act()
                if self.stopped:
                    self.propagate.sync()
                    break
        self.losses.settle()

    def _keep_prefix(self) -> None:
        """Keep other jobs from this one's snapshots, if there are to be any. Collective the first time."""
        if (self.param.snapshot or self.param.snapshot_after_train) and not self._keeps_prefix:
            self.world.on_root(self.lock.take)
            self._keeps_prefix = True

    def _share(self) -> None:
        """Have the root's parameters go out, if somebody may have written into any since the last step. Collective.

        Who has asked for a parameter's array may hold it, and write into it later.
        """
        if self.world.size > 1 and not self._touched:
            self._touched = bool(self.world.allsum(self._parameter_versions() != self._versions))
        if self._touched:
            self.propagate.changed()

    def _parameter_versions(self) -> int:
        """Return a number that grows whenever a parameter's array is handed out."""
        blobs = (blob for net in (self.net, *self.test_nets) for layer in net.layers for blob in layer.blobs)
        return sum(blob.values.version for blob in blobs)

    def _plan(self) -> None:
        """Have the root choose how the engine computes, and all ranks compute so."""
        nets = self.net, *self.test_nets
        self.choices.taken = self.world.on_root(lambda: self.choices.time(nets))

    def _iterate(self, ends: bool) -> None:
        """Run an iteration; if it `ends` a step all ranks have the root's parameters then."""
        record = self.world.record
        record.begin(self.iter)
        self.rate()  # on all ranks, of which some may have no update to make: it raises where there is no such rate
        run, start = iterate, time.perf_counter()
        agree: Callable[..., Any] = partial(self.losses.take, iteration=self.iter)
        if self.timeline:
            run = self.timeline.timed(ITERATION, self.iter, run)
            agree = self.timeline.timed(WAIT, 0, agree, LOSS)
        run(self.net, self.workflow, self.statistics, self.param.iter_size, agree, record)
        self.rule.look()
        if ends:
            self.propagate.sync()
        seconds = time.perf_counter() - start
        for decided in (self.workflow.took(), self.trial.took(seconds)):
            if decided:
                log.info("%s", decided)

    def _update(self, bucket: Bucket) -> None:
        if self.replay:
            self.replay.update(bucket.part)
        else:
            self.rule.update(bucket.parameters, self.rate(), self.iter, bucket.part)

    @property
    def workflow(self) -> Workflow:
        """The ways of the next iteration."""
        return self.trial.workflow

    @property
    def propagate(self) -> Propagate:
        """How the root's parameters reach the other ranks."""
        return self.workflow.propagate

    def rate(self) -> float:
        """Return the learning rate of the current iteration, before any lr_mult."""
        return lr_policy.rate(self.param, self.iter)

    def _act(self) -> None:
        """Snapshot if it is time or somebody asked, and stop if somebody asked."""
        due = self.param.snapshot and self.iter % self.param.snapshot == 0
        wishes, self.losses.wishes = self.losses.wishes, set()
        if due or wishes & {"snapshot", "requeue"}:
            self.losses.settle()
            self.snapshot()
        self.stopped = next((wish for wish in ("requeue", "stop") if wish in wishes), "")

    @collective
    def solve(self, resume: str | os.PathLike | None = None) -> None:
        """Train until max_iter, or until a signal stops it; snapshot, display and test at the end as Caffe does."""
        p = self.param
        log.info("Solving %s", self.net.name)
        log.info("Learning Rate Policy: %s", p.lr_policy)
        self._keep_prefix()
        if resume:
            self.restore(resume)
        first, start = self.iter, time.perf_counter()
        self.step(max(0, p.max_iter - first))
        display.end(self, time.perf_counter() - start)
        if p.snapshot_after_train and self.stopped != "requeue" and not (p.snapshot and self.iter % p.snapshot == 0):
            self.snapshot()
        if self.stopped:
            self.bad_records.finish(self.world)
            log.info("Optimization stopped early.")
            return
        if p.display and self.iter % p.display == 0:
            display.final_loss(self)
        if self._is_test_due():
            self.test_all()
        self.bad_records.finish(self.world)
        log.info("Optimization Done.")

    def write_timeline(self) -> None:
        """Write the timeline up to now, if there is one. Raise SnapshotError where it can't be written. Collective."""
        timeline, path = self.timeline, self.timeline_path
        if timeline is None or path is None:
            return
        buckets = self.workflow.aggregate.buckets
        nbytes = {b.label(self.net): self.net.packed.data[b.part].nbytes for b in buckets}
        about = {"run": asdict(self.run), "buckets": nbytes}
        trace.write(self.world, path, timeline.spans(), about)
        log.info("Timeline in %s; scaffe timeline %s tells what it says", path, path)

    # Tests.

    def _is_test_due(self) -> bool:
        return bool(self.test_nets) and self.iter % self.param.test_interval == 0

    @collective
    def test_all(self) -> None:
        """Run all test nets and log the means of their outputs, exact over the ranks."""
        self.propagate.sync()
        for k, net in enumerate(self.test_nets):
            log.info("Iteration %d, Testing net (#%d)", self.iter, k)
            self.world.record.begin(self.iter, k + 1)
            mean = means(run_batches(net, self.param.test_iter[k], self.world))
            if self.param.test_compute_loss:
                log.info("Test loss: %.6g", mean.loss)
            display.outputs("Test", net, mean.outputs)
        self.world.record.begin(self.iter)
        self.tests_done += 1

    # Snapshots.

    @collective
    def snapshot(self) -> str:
        """Write weights and solver state; return the state's path on all ranks."""
        self.world.record.at(SNAPSHOT)
        self.propagate.sync()
        return self.world.on_root(lambda: snapshot.save(self))

    @collective
    def restore(self, path: str | os.PathLike) -> None:
        """Go on where the snapshot was taken, or at the newest complete one of the prefix for the path "auto"."""
        snapshot.restore(self, path)
        self.propagate.sync()

    @collective
    def copy_weights(self, paths: Sequence[str]) -> None:
        """Start from the weights of these files, later ones over earlier ones."""
        self.world.on_root(lambda: weights.load_all(self.net, paths))
        self.propagate.changed()
        self.propagate.sync()

    @public
    def close(self) -> None:
        """End the nets' reader threads, and the workflow; write the timeline; let other jobs write. Collective.

        Once a call has failed on this rank alone, threads end and the rest is left: the others are not here. Closing
        twice is allowed. Raise SnapshotError where the timeline can't be written.
        """
        self.lock.release()
        self._keeps_prefix = False
        if self._closed:
            return
        if self._failed_alone:
            for workflow in self.trial.workflows:
                workflow.drive.close()
            self._end_readers()
            return
        self._closed = True
        self.write_timeline()
        self._end_readers()
        self.trial.close()
        self.net.context.allsums = self.world.allsums  # the net may be used on
        self.net.packed.pinned = False
        if self.watch is not None:
            self.watch.close()
        if self.collectives is not None:
            # Users' arrays over shared memory may be used on too.
            held = self.net.context.gpu is None and self.net.move_parameters(aligned_zeros)
            self.collectives.free(windows=not any(self.world.allgather(held)))

    def _end_readers(self) -> None:
        for net in (self.net, *self.test_nets):
            net.close()


def get_solver(path: str | os.PathLike, **options) -> Solver:
    """Return the solver that a prototxt file describes; `options` are Solver's."""
    return Solver(path, **options)


def _check(param: SolverParameter) -> None:
    """Raise ScaffeError where a solver's field makes no sense."""
    numbers.check(param)
    lr_policy.check(param)
    least = {"iter_size": 1, "average_loss": 1, "snapshot": 0, "max_iter": 0}
    for field, number in least.items():
        if getattr(param, field) < number:
            raise ScaffeError(f"{field} must be {number} or more, got {getattr(param, field)}")
    if "\0" in param.snapshot_prefix:
        raise ScaffeError(f"snapshot_prefix {param.snapshot_prefix!r}: no file's name holds a zero byte")
    if not 0 <= param.momentum < 1:
        raise ScaffeError(f"momentum must be 0 or more and below 1, got {param.momentum:g}")
    if any(number < 1 for number in param.test_iter):
        raise ScaffeError(f"test_iter must be 1 or more, got {' '.join(map(str, param.test_iter))}")
