"""World: the ranks of this job. The only module that initialises MPI."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import numpy as np

from collectives import CollectiveError, RankLostError, abort, agree
from collectives.agreement import digest, raise_difference
from collectives.group import Group, among
from collectives.loss import as_rank_lost, ignoring_loss, is_loss
from readers import ReaderError
from scaffe.devices.threads import check_threads, explain, given_threads, limit_blas
from scaffe.errors import AgreedError, DeviceError, LaunchError, RanksLostError, ScaffeError, notes, text_of
from scaffe.monitor import log as logs
from scaffe.monitor.record import RANKS, RankRecord
from scaffe.parallel.cut_off import is_cut_off
from scaffe.parallel.hosts import ELSEWHERE, fair_threads, find_places
from scaffe.parallel.instances.topology import ranges
from scaffe.parallel.mpi_library import LAUNCHED, can_shrink, fewer_threads, load_mpi
from scaffe.parallel.reserve import LostRank, Reserve
from scaffe.parallel.watch.start import connected, disconnect, end_launcher, ended_early
from scaffe.parallel.watch.watch import Watch

if TYPE_CHECKING:
    from mpi4py import MPI

    from scaffe.devices.gpu import Gpu

T = TypeVar("T")
USER_ERRORS = (ScaffeError, ReaderError, CollectiveError)
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE")  # set by mpirun, mpiexec, srun --mpi=pmi2
_world: World | None = None


class World(Reserve):
    """The job's communicator, and this rank's part of it.

    - `rank`, `size`, `root`: as in MPI; the root is rank 0.
    - `host`, `cores`, `threads`: this rank's host name, the cores it is bound to, and the threads it computes with.
    - `places`: host and cores of all ranks, by rank; of other hosts' ranks no cores are known. `firsts`: the ranks at
      the job's start. `pids`: the processes, 0 for one of another host.
    - `launched`: the processes at the job's start, by their ranks then; of another host its name alone.
    - `group`: the nodes of the ranks, where ranks that share memory are on one; None until a Communicator asks.
    - `gpus`: the PCI bus addresses of the GPUs of this host's ranks, "" for the CPU, ELSEWHERE for other hosts' ranks.
    - `gpu`: the GPU this rank computes on, None for the CPU.
    - `noticed`: the error by which this rank noticed a loss itself, or "". `revoked`: whether it has called `revoke`.
    - `lost`: the ranks that `shrink` has gone on without. `is_cut_off`: whether they may be going on without this one.
    - `spares`: the processes that wait to take lost ranks' places, None without any. A spare's World is itself alone.
    - `watch`: over this job's ranks; it has no thread until there is a probe.
    - `record`: what this rank, or the instance of the calling thread, is doing, for the stall watchdog.

    Making it is collective.
    """

    root = 0
    noticed = ""
    revoked = False

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._main, self._own = RankRecord(), threading.local()
        self.host = socket.gethostname()
        self.cores = sorted(os.sched_getaffinity(0))
        self.group = Group.from_comm(comm)
        self.places, self.launched = find_places(comm, self.group, self.cores)
        self.pids = [one.pid for one in self.launched]
        self.firsts = [*range(self.size)]
        self.lost: list[LostRank] = []
        self.watch = Watch()
        self._launch = comm.group
        self.gpu: Gpu | None = None
        self.gpus = [""] * self.size  # by rank: PCI bus address
        self.together(self.share_cores)

    def share_cores(self) -> None:
        """Set the threads that OMP_NUM_THREADS asks for, else those of a fair part of the cores. Not collective."""
        self.take_threads(given_threads() or fair_threads(self.host, self.cores, self.places))

    def take_threads(self, threads: int) -> None:
        """Set the number of threads that this rank computes with and numpy's BLAS. Raise LaunchError if invalid."""
        self.threads = check_threads(threads, 1)
        limit_blas(threads)

    @staticmethod
    def now() -> float:
        """Return the seconds of this rank's clock, by which messages and waits are timed."""
        return time.perf_counter()

    @property
    def record(self) -> RankRecord:
        """What the calling thread is doing; threads without a record of their own share the rank's."""
        found: RankRecord = getattr(self._own, "record", self._main)
        return found

    def take_record(self, record: RankRecord) -> None:
        """Give the calling thread a record of its own."""
        self._own.record = record

    def take_gpu(self, gpu: Gpu | None) -> None:
        """Set this rank's GPU, None for the CPU. If any rank has none, all ranks compute on the CPU. Collective."""
        with self.record.waiting(RANKS):
            near = among(self.comm, self.neighbours)
            buses = dict(zip(self.neighbours, near.allgather(gpu.bus if gpu else ""), strict=True))
            near.Free()
            found = int(self.allsum(gpu is not None))
            self.gpus = [buses.get(rank, ELSEWHERE if found else "") for rank in range(self.size)]
        if 0 < found < self.size:
            missing = [rank for rank, has in enumerate(self.allgather(gpu is not None)) if not has]
            logs.log.info("No GPU for rank(s) %s: all ranks compute on the CPU", ranges(missing))
        self.gpu = gpu if found == self.size else None

    @property
    def neighbours(self) -> list[int]:
        """The ranks on this host, ascending."""
        return [rank for rank, (host, _) in enumerate(self.places) if host == self.host]

    @property
    def spare_cores(self) -> int:
        """The number of this rank's cores that its compute threads leave to reader threads, at least 1."""
        return max(1, fair_threads(self.host, self.cores, self.places) - self.threads)

    @property
    def is_root(self) -> bool:
        """Whether this rank is the root."""
        return self.rank == self.root

    def allsum(self, value: float) -> float:
        """Return the sum of `value` over all ranks, the same bits on each. Collective."""
        return float(self.allsums([value])[0])

    def allsums(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the sums of the values over all ranks, float64, the same bits on each. Collective."""
        sums = np.array(values, np.float64)
        if self.size > 1:  # else each iteration would call MPI for nothing
            from mpi4py import MPI

            with self.record.waiting(RANKS):
                self.comm.Allreduce(MPI.IN_PLACE, sums)
        return sums

    def allmin(self, value: float) -> float:
        """Return the least value of all ranks. Collective."""
        from mpi4py import MPI

        with self.record.waiting(RANKS):
            return float(self.comm.allreduce(value, MPI.MIN))

    def allgather(self, value: T) -> list[T]:
        """Return all ranks' values by rank, on all ranks. Collective."""
        with self.record.waiting(RANKS), self._whole():
            return self.comm.allgather(value)

    def bcast(self, value: T, source: int = root) -> T:
        """Return the value of rank `source`, on all ranks. Collective."""
        with self.record.waiting(RANKS), self._whole():
            return cast(T, self.comm.bcast(value, source))

    def agree(self, values: Mapping[str, str]) -> None:
        """Raise DisagreementError on all ranks unless all have the same values, given by name. Collective."""
        with self.record.waiting(RANKS), self._whole():
            agree(self.comm, values)

    def together(self, work: Callable[[], T], alike: Callable[[T], Mapping[str, str]] = lambda result: {}) -> T:
        """Return `work()`, which does not communicate. Collective.

        If it raises one of USER_ERRORS on any rank, raise AgreedError on all ranks, with the text of the lowest such
        rank. A single rank raises the error itself. Raise DisagreementError unless `alike(result)`, values by name, is
        the same on all ranks. An allreduce of 24 bytes says that all is well.
        """
        result: T | None = None
        failure: Exception | None = None
        values: Mapping[str, str] = {}
        try:
            result = work()
            values = alike(result)
        except USER_ERRORS as error:
            failure = error
        if self.size == 1:
            if failure is not None:
                raise failure
            return cast(T, result)
        from mpi4py import MPI

        word = digest(values)
        found = np.array([failure is not None, word, -word], np.int64)
        with self.record.waiting(RANKS), self._whole():
            self.comm.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
            if found[0]:
                self._raise_lowest(failure)
            if found[1] != -found[2]:
                raise_difference(self.comm, values)
        return cast(T, result)

    def _raise_lowest(self, failure: Exception | None) -> NoReturn:
        """Raise on all ranks the error of the lowest rank that has a `failure`. Collective."""
        failures = self.comm.allgather(failure and text_of(failure))
        failed = [rank for rank, one in enumerate(failures) if one]
        text = failures[failed[0]]
        everywhere = len(failed) == self.size and set(failures) == {text}
        raise AgreedError(text if everywhere else f"rank {failed[0]}: {text}")

    def on_root(self, work: Callable[[], T]) -> T:
        """Return the root's `work()` on all ranks; raise its errors on all ranks, as `together` does. Collective."""
        found: tuple[T | None, str] = None, ""
        if self.is_root:
            try:
                found = work(), ""
            except USER_ERRORS as error:
                if self.size == 1:
                    raise
                found = None, text_of(error)
        result, text = self.bcast(found)
        if text:
            raise AgreedError(f"rank {self.root}: {text}")
        return cast(T, result)

    @property
    def file_mark(self) -> str:
        """The part of a file's name that differs between ranks: .rank0of4, or "" on a single rank."""
        return f".rank{self.rank}of{self.size}" if self.size > 1 else ""

    # Lost ranks.

    def revoke(self) -> None:
        """End all waits of this object, on all ranks, with an error: a rank is lost. Not collective."""
        self.revoked = True
        with ignoring_loss():
            self.comm.Revoke()
        if self.spares is not None and self.fills_places:
            self.spares.revoke()

    def shrink(self) -> list[LostRank]:
        """Go on with the ranks that are left, renumbered in their order; return those lost since the last time.

        Each rank has called `revoke` and has no message in flight. Where the World `fills_places`, spares take places
        of lost ranks. Collective over the ranks that are left, then also over the spares, which are in `standby`.
        """
        if self.spares is not None and self.fills_places:
            with self.record.waiting(RANKS):
                return self._regroup(self.spares)
        before = self.comm
        with self.record.waiting(RANKS):
            comm = cast("MPI.Intracomm", before.Shrink())
        left = before.group.Translate_ranks([*range(self.size)], comm.group)
        stay = [rank for rank, new in enumerate(left) if new >= 0]
        gone = [rank for rank in range(self.size) if rank not in stay]
        lost = [LostRank(k, self.places[k][0], self.pids[k], self.firsts[k]) for k in gone]
        self.is_cut_off |= is_cut_off([host for host, _ in self.places], [one.rank for one in lost], self.root)
        self.lost += lost  # first: `comm` does not miss them, as a watchdog may see
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.places, self.pids = [self.places[k] for k in stay], [self.pids[k] for k in stay]
        self.gpus, self.firsts = [self.gpus[k] for k in stay], [self.firsts[k] for k in stay]
        self.group = self.group and Group.of([self.group.nodes[k] for k in stay])
        if logs.log.handlers:
            logs.start(self.rank)
        return lost

    def end_lost(self, lost: Iterable[LostRank]) -> None:
        """Kill processes of this host that count as lost but run: they could write to memory that the ranks share."""
        for one in (self.launched[rank.first] for rank in lost):
            if one.host == self.host and one.pid != os.getpid():
                with suppress(OSError):
                    one.kill()

    def misses_any(self) -> bool:
        """Return whether MPI knows, on this rank, that one has ended. Not collective."""
        return can_shrink() and bool(self.comm.Get_failed().Get_size())

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Raise RankLostError for any error where a rank is lost: Open MPI may deliver a torn message."""
        try:
            yield
        except Exception as error:
            if is_loss(error) or not self.misses_any():
                raise
            raise RankLostError(f"a rank was lost, and its message is torn: {error}") from error

    def attempt(self, work: Callable[[], object], break_off: Callable[[], object]) -> bool:
        """Do `work`; return whether all ranks have done it, the same on all ranks: False where one is lost. Collective.

        A rank that notices a loss calls `break_off`, which ends the waits of the other ranks with an error.
        """
        done = False
        try:
            work()
            done = not self.misses_any()
            self.noticed = "" if done else "one has ended"
        except Exception as error:
            if not is_loss(error):
                raise
            self.noticed = self.noticed if "ERR_REVOKED" in str(error) else str(error)
        if not done:
            break_off()
        with ignoring_loss(), self.record.waiting(RANKS):
            return bool(self.comm.Agree(done))  # all ranks get the same result, or all an error
        return False

    def retried(self, work: Callable[[], T]) -> T:
        """Return `work()`; if a rank is lost meanwhile, those that are left do it again. Collective."""
        results: list[T] = []
        while not self.attempt(lambda: results.append(work()), self.revoke):
            self.revoke()
            for one in self.shrink():
                if self.is_root:
                    logs.log.warning("Lost %s, in set-up", one)
        return results[-1]

    def leave(self, code: int) -> NoReturn:
        """End this process with an exit code, once all ranks have come so far: MPI can't always end without some."""
        with self.record.waiting(RANKS):
            with ignoring_loss():
                self.comm.Barrier()
            self.dismiss_spares(code)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def is_alike(self, error: BaseException) -> bool:
        """Return whether all ranks have raised this error at the same point, and so can still call collectives."""
        if self.is_spare:  # whose size is 1; RanksLostError: only spares are left
            return isinstance(error, RanksLostError)
        return getattr(error, "alike", False) or self.size == 1

    def fail(self, error: BaseException) -> int:
        """Report an error and end the job.

        The exit code is a ScaffeError's own, 2 for an error that the user can correct, and 1 for any other. Return it
        if all ranks raised the error alike; else abort all ranks with it.
        """
        if self.gpu is not None and (text := self.gpu.explain(error)):
            error = DeviceError(text)  # a GPU reports a failure at any later call
        elif text := explain(error):
            error = ScaffeError(text)
        error = as_rank_lost(error) if isinstance(error, Exception) else error
        expected = isinstance(error, (*USER_ERRORS, MemoryError))  # the user can choose smaller sizes
        code = 2 if expected and not is_loss(error) else 1
        if isinstance(error, ScaffeError):
            code = getattr(error, "exit_code", code)
        alike = self.is_alike(error)
        if self.is_root or not alike:
            self._report(error, expected, [] if alike else [self.name])
        if alike:
            with ignoring_loss(), self.record.waiting(RANKS):
                self.comm.Barrier()
                return code
            if not self.is_root:  # a rank was lost meanwhile: the root may be elsewhere
                self._report(error, expected, [f"rank {self.rank}"])
        self.abort(code)
        return code

    def abort(self, code: int) -> None:
        """End all ranks, with an exit code unless the launcher has one of its own. Not collective."""
        if can_shrink():
            end_launcher(os.getppid())
        self.comm.Abort(code)

    def _report(self, error: BaseException, expected: bool, where: list[str]) -> None:
        """Write an error to stderr: its text if it is `expected`, else its traceback."""
        text = (str(error) or "out of memory") if expected else "".join(traceback.format_exception(error)).rstrip()
        lines = [text] if expected else text.split("\n")
        text = "\n".join(map(logs.one_line, lines))
        abort.write(f"scaffe: {''.join(f'{logs.one_line(one)}: ' for one in [*where, *notes(error)])}{text}\n")


def open_world() -> World:
    """Initialise MPI, once per process, and return this job's World. Collective.

    From then on an exception that ends a rank ends all ranks. Raise LaunchError if no MPI library can be loaded, or if
    the launcher started several processes and each is alone in its MPI_COMM_WORLD.
    """
    global _world
    if _world is None:
        _world = _started()
        MPI = load_mpi()
        if not logs.log.handlers:
            logs.start(_world.rank)
        if (given := MPI.Query_thread()) < MPI.THREAD_MULTIPLE and _world.is_root:
            logs.log.warning("%s", fewer_threads(given))
        if _world.size > 1:
            sys.excepthook = _abort_all
    return _world


def opened_world() -> World | None:
    """Return this job's World if this process has opened it."""
    return _world


def finalize() -> None:
    """Finalise MPI at the end of a process that runs no atexit functions, such as multiprocessing's. Collective."""
    from mpi4py import MPI

    MPI.Finalize()


def _started() -> World:
    """Initialise MPI, and return the World. If a rank is lost meanwhile, end the job. Collective."""
    watch = connected()
    MPI = load_mpi()
    try:
        _check_launcher(MPI.COMM_WORLD.size)
        return World(MPI.COMM_WORLD.Dup())
    except Exception as error:
        if isinstance(error, ScaffeError) or not is_loss(error):
            raise
    finally:
        disconnect(watch)
    abort.write(ended_early("a rank"))
    end_launcher(os.getppid())
    os._exit(RanksLostError.exit_code)


def _check_launcher(size: int) -> None:
    """Raise LaunchError if the launcher started several processes but MPI_COMM_WORLD has one, `size` being its size."""
    announced = launcher_size()
    if any(os.environ.get(name, "").isdigit() for name in _SIZES):
        hint = "mpirun and mpi4py's MPI are not the same library"
    else:
        hint = "start with mpirun, or srun --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI with PMIx)"
    if size == 1 and announced > 1:
        raise LaunchError(f"the launcher started {announced} processes but each is alone in its MPI world: {hint}")


def launcher_rank() -> int:
    """Return this process's rank from the launcher's environment variables, without MPI; 0 if there are none."""
    names = *LAUNCHED, "SLURM_PROCID"
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


def launcher_size() -> int:
    """Return the number of processes from the launcher's environment, without MPI; 1 if it has no such variable."""
    announced = next((int(os.environ[name]) for name in _SIZES if os.environ.get(name, "").isdigit()), None)
    if announced is None:
        announced = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) if "SLURM_STEP_ID" in os.environ else 1
    return announced


def _abort_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
    """End all ranks with this rank's traceback: the others would wait for ever for a rank that has exited."""
    assert _world is not None
    if issubclass(kind, KeyboardInterrupt):
        _world.abort(130)
    sys.exit(_world.fail(error.with_traceback(trace)))
