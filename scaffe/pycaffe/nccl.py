"""NCCL: pycaffe's sum of gradients over processes, here by scaffe's collectives, with or without a GPU."""

from __future__ import annotations

from scaffe.errors import CallError, LaunchError, ScaffeError
from scaffe.pycaffe import processes, ranks
from scaffe.pycaffe.solvers import CaffeSolver
from scaffe.training.solver import Solver
from scaffe.training.solver_callbacks import SumOverRanks


class NCCL(SumOverRanks):
    """The ranks that train together with a solver, as a callback of it.

    Under mpirun, and in processes whose parent called `new_uid` before it started them, a solver broadcasts
    parameters and sums gradients itself. This object then adds nothing: `solver.add_callback(nccl)` is the place of
    the sums among the callbacks, and `net.after_backward(nccl)` does nothing. Gradients are summed once, and divided
    by the number of ranks. Raise LaunchError where set_solver_count has announced processes that have not become
    ranks, and ScaffeError for the uid of another group.
    """

    def __init__(self, solver: CaffeSolver | Solver, uid: bytes | str):
        if not isinstance(solver, (CaffeSolver, Solver)):
            raise CallError(f"NCCL takes a solver and a uid, got {solver!r}")
        self.solver = solver
        if ranks.solver_count() != solver.world.size:
            raise LaunchError(
                f"{ranks.solver_count()} solvers are to train together, but {solver.world.size} have met: call "
                "NCCL.new_uid before the processes start, and set_solver_count and set_solver_rank before the solver"
            )
        name = uid.decode() if isinstance(uid, bytes) else uid
        if not processes.is_ours(name):
            raise ScaffeError("NCCL: the uid is of another group; hand all processes the one that new_uid returned")

    @staticmethod
    def new_uid() -> bytes:
        """Return the name of a group of processes, to be called before the program starts them."""
        return processes.new_uid().encode()

    def bcast(self) -> None:
        """Give all ranks the root's parameters. Collective."""
        self.solver.bcast()

    broadcast = bcast

    def __call__(self, layer: int) -> None:
        """Do nothing after a layer's backward pass: the workflow decides when its gradients are summed."""
