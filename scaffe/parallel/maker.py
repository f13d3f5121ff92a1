"""Maker: make the workflow that a run's settings name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

from collectives import tuning
from collectives.communicator import Communicator
from collectives.execution.maker import CHUNK
from collectives.model.clusters import Cluster, find_cluster
from collectives.tuning.modelled import STEP
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.aggregate import nothing
from scaffe.parallel.buckets import Bucket, suited_bytes
from scaffe.parallel.instances.instance_nets import InstanceNets
from scaffe.parallel.instances.team import Team
from scaffe.parallel.residuals import NoResiduals, Residuals
from scaffe.parallel.rounded import RoundedParameters
from scaffe.parallel.run import Run
from scaffe.parallel.suited import suited_to
from scaffe.parallel.workflows.alone import Alone
from scaffe.parallel.workflows.workflow import Functions, Workflow, WorkflowParts, registered
from scaffe.parallel.world import World
from scaffe.setting import parse_bytes
from scaffe.solvers.rule import Rule

GATHERED = 1 << 20, 4 << 20  # least and most bytes of a bucket that instances sum, and whose update one of them does
FEW = 4 << 20  # bytes of parameters that cost less to copy, with their history, than updates that nothing hides
DEVICE_BUCKET = 25 << 20  # bytes, where no table says otherwise
PARTS = 8  # buckets for each instance, if they have such sizes: a few, so that all have as much to do


def make_workflow(
    run: Run,
    world: World,
    comm: Communicator | None,
    net: Net,
    update: Callable[[Bucket], None],
    rule: Rule,
    instances: InstanceNets | None = None,
    functions: Functions | None = None,
    check: Callable[[], object] = nothing,
    residuals: Residuals | None = None,
) -> Workflow:
    """Return the workflow of `run`, one of a run's candidates; a single rank gets `Alone`. Collective.

    `update(bucket)` applies the `rule` to a bucket. `instances` has the nets of several, `net` first. `functions` are
    the users', on all ranks or on none; `check()` precedes the first update of an iteration whose sums are complete;
    `residuals` are what earlier messages have lost of gradients.
    """
    residuals = residuals or NoResiduals()
    if net.engine.in_host_memory:
        run.check_rounded_leaders()
    if comm is None or world.size == 1:
        nbytes = _gathered_bytes(net.packed.nbytes, len(instances.nets)) if instances else inf
        parts = WorkflowParts(
            world, None, net, update, rule, nbytes, instances=instances, functions=functions, check=check,
            residuals=residuals,
        )  # fmt: skip
        return Alone(parts)
    nbytes = _bucket_bytes(run, world, comm, net)
    how = run.collective, run.how, run.how_down
    others = instances, _rounded(run, net), functions
    copied = net.packed.nbytes if net.engine.in_host_memory and not instances else inf  # instances have another drive
    early = may_update_early(run, comm.shape.nodes, copied)
    given = world, comm, net, update, rule, nbytes, run.drive, *how, *others
    parts = WorkflowParts(*given, early=early, check=check, owners=run.owners, residuals=residuals)
    return registered()[run.workflow](parts)


def may_update_early(run: Run, nodes: int, nbytes: float) -> bool:
    """Return whether buckets may be updated before all sums of an iteration are complete.

    An early update can be broken off, so with shrink a bucket is copied first: that pays off between nodes, and for the
    helper where there are FEW `nbytes` of parameters.
    """
    return not run.shrinks or nodes > 1 or (run.drive == "helper" and nbytes <= FEW)


def _rounded(run: Run, net: Net) -> RoundedParameters | None:
    """Return what is broadcast in place of the parameters where the run says so. Raise ScaffeError on a GPU."""
    if run.broadcast_numbers == "float32":
        return None
    if (rounded := RoundedParameters.of(net)) is None:
        raise ScaffeError(f"--broadcast-numbers {run.broadcast_numbers} on a GPU: the CPU alone has it; leave it out")
    few, all_ = rounded.words.nbytes, net.packed.nbytes
    log.info("Broadcasts of an iteration carry weights in bf16: %d bytes, where float32 has %d", few, all_)
    return rounded


def _gathered_bytes(total: int, instances: int) -> float:
    """Return the bytes of a bucket that suit instances with so many bytes of gradients: a power of two of them."""
    least, most = GATHERED
    return min(most, max(least, 1 << (total // (PARTS * instances)).bit_length()))


def candidates(run: Run, world: World, team: Team, is_settled: bool) -> dict[str, Run]:
    """Return the runs to time, by name; a single one unless the instances, whose trial comes first, are settled."""
    found = run.candidates if world.size > 1 else {"alone": run}
    if team.total > world.size:  # their threads are the drive
        found = {one.workflow: one for one in found.values()}
    return found if is_settled else dict([found.popitem()])


def _bucket_bytes(run: Run, world: World, comm: Communicator, net: Net) -> float:
    """Return the maximum bytes of a bucket; for "auto" those that suit the algorithm or the network.

    By the cost of the algorithm that is given, on a described cluster, or by the root's tables.
    """
    if run.bucket_bytes != "auto":
        return parse_bytes(run.bucket_bytes)
    if not net.engine.in_host_memory:
        return world.bcast(_device_bytes(comm, net, comm.device_plans.memory) if world.is_root else 0.0)
    links = _described(comm)
    if given := suited_to(run, net.packed.nbytes, links, world.size, [CHUNK]):
        log.info("Buckets of up to %d bytes suit %s, by its cost on %s", given, run.reduce, links.name)
        return given
    alpha, beta, source = world.bcast(_line(comm) if world.is_root else (0.0, 0.0, ""))
    nbytes = suited_bytes(net.packed.nbytes, alpha, beta, world.size)
    why = f"{1e6 * alpha:.3g} us a message and {1e-9 / beta:.3g} GB/s, from {source}"
    log.info("Buckets of up to %d bytes suit %s: %s", nbytes, comm.shape, why)
    return nbytes


def _device_bytes(comm: Communicator, net: Net, memory: str) -> float:
    """Return the bytes of a bucket on devices: by the root's table, or those with which few buckets cost host waits."""
    table, total = comm.table or tuning.shipped(), net.packed.nbytes
    if line := table.line("reduce", comm.shape, True, memory):
        nbytes, why = suited_bytes(total, *line, comm.size), f"by {table.source}"
    else:
        nbytes, why = min(total, DEVICE_BUCKET), "since each bucket costs two waits of the host"
    log.info("Buckets of up to %d bytes suit arrays in %s memory, %s", nbytes, memory.split()[0], why)
    return nbytes


def _line(comm: Communicator) -> tuple[float, float, str]:
    """Return seconds a message, seconds a byte, and their source: the tuning table, or else a cluster's description."""
    table, shape = comm.table or tuning.shipped(), comm.shape
    if found := table.line("reduce", shape, shape.nodes == 1):
        return STEP + found[0], found[1], table.source
    cluster = _described(comm)
    inside = shape.nodes == 1
    alpha, beta = (cluster.alpha_in, cluster.beta_in) if inside else (cluster.alpha, cluster.beta)
    return alpha, beta, f"the description of {cluster.name}"


def _described(comm: Communicator) -> Cluster:
    """Return a description of such nodes and networks, with the time that Python takes for each message."""
    shape = comm.shape
    cluster = find_cluster("infiniband" if shape.network == tuning.FABRIC else "ethernet")
    inside = comm.size if shape.nodes == 1 else max(1, shape.ranks)
    alpha, alpha_in = cluster.alpha + STEP, cluster.alpha_in + STEP
    return replace(cluster, alpha=alpha, alpha_in=alpha_in, ranks_per_node=inside)
