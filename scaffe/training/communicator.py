"""The collectives of a run, with the parameters in memory that suits them."""

from __future__ import annotations

from collections.abc import Sequence

from collectives import Communicator
from collectives.schedules.algorithms import with_chain_size
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.run import Run
from scaffe.parallel.world import World

IN_SHARED_MEMORY = ("auto", "slices", "leaders")  # algorithms that are faster where a node's ranks share memory


def open_communicator(
    world: World, run: Run, net: Net, earlier: Sequence[Communicator] | None = None
) -> Communicator | None:
    """Return the collectives over the ranks, None for one rank alone. Collective.

    Where ranks of a node share memory and the run's algorithm gains by it, the net's parameters move there: after a
    loss to the windows of `earlier`, this rank's communicators that have lost ranks. A new rank has none.
    """
    if world.size == 1:
        return None
    given = {"supernodes": run.supernodes, "through_host": run.shrinks}
    comm = Communicator(world.comm, group=world.group, device=net.engine.device, **given)
    if net.engine.in_host_memory and comm.shape.nodes < comm.size and run.reduce.startswith(IN_SHARED_MEMORY):
        count = net.packed.nbytes // 4
        known = [] if earlier is None or not net.packed.is_blank else comm.take_over(earlier, count, 2)
        if known:
            net.move_parameters(lambda count: known.pop(0))
        elif comm.has_room(2 * net.packed.nbytes):
            net.move_parameters(comm.empty)
        else:
            log.info("Parameters stay in each rank's own memory: a node's shared memory (/dev/shm) has no room")
    if run.supernodes:
        algorithm = with_chain_size(run.reduce, run.chain_size or None)
        device = "cpu" if net.engine.in_host_memory else "cuda"
        said = comm.explain(run.collective, net.packed.nbytes, algorithm=algorithm, device=device, numbers=run.numbers)
        log.info("Supernodes: %s", said)
    return comm
