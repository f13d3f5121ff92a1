"""Whether the ranks that are left by a loss go on (--on-rank-loss shrink)."""

from __future__ import annotations

from scaffe.errors import LaunchError, RanksLostError, ScaffeError
from scaffe.monitor.log import log
from scaffe.parallel.mpi_library import can_shrink
from scaffe.parallel.run import Run
from scaffe.parallel.world import World

MOST_FALSE_ALARMS = 3  # that a run goes on after: Open MPI 5 reports some over TCP


def check_shrink(world: World, run: Run) -> None:
    """Raise ScaffeError, or LaunchError, where the ranks that are left could not go on."""
    if run.mirror_every and (not run.shrinks or run.sync == "allreduce"):
        text = "needs --on-rank-loss shrink" if not run.shrinks else "with --sync allreduce: every rank has the state"
        raise ScaffeError(f"--mirror-every {run.mirror_every} {text}; leave --mirror-every out")
    if not world.lost and not world.is_spare and world.size < run.min_ranks:
        text = f"--min-ranks {run.min_ranks}: the launch has {world.size} rank(s) that train; start more ranks"
        raise ScaffeError(text)
    if not run.shrinks:
        return
    if not can_shrink():
        raise LaunchError(
            "--on-rank-loss shrink: this job ends with any of its ranks; start it with jobs/mpirun.sh --ft, or "
            "with mpirun --with-ft ulfm"
        )
    if world.gpu is not None and run.spares:
        raise ScaffeError(f"--spares {run.spares} does not work with ranks that compute on GPUs; leave --spares out")
    check_left(world, run)


def check_left(world: World, run: Run) -> None:
    """Raise RanksLostError on all ranks if ranks are lost, and those that are left are too few, or not alone."""
    if world.is_cut_off:
        raise RanksLostError(f"ranks left: {world.size}, which the others may have gone on without")
    if world.lost and world.size + world.waiting_spares < run.min_ranks:
        raise RanksLostError(f"ranks left: {world.size}, fewer than --min-ranks {run.min_ranks}")


class FalseAlarms:
    """The losses that MPI has reported though no rank was lost: `count` of them, the same on all ranks."""

    count = 0

    def check(self, world: World) -> None:
        """Count one more. Raise RanksLostError where there were so many that going on would not end."""
        self.count += 1
        if self.count > MOST_FALSE_ALARMS:
            raise RanksLostError(f"MPI reported a lost rank {self.count} times, but none is lost")
        if world.noticed:
            log.warning("MPI reported a lost rank (%s), but none is lost: all ranks go on", world.noticed)
            world.noticed = ""
