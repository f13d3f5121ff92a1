"""Team: the instances of this rank, where they run, and the threads that run them.

Instance i of a rank is one of all ranks' instances, numbered rank by rank. A net's Context has this number for its
rank, so that shards, crops, dropout masks and shares of the loss are those of a run with so many ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from scaffe.blobs.shared_forms import SharedForms
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log
from scaffe.monitor.record import INSTANCES, RankRecord
from scaffe.net.net import Net
from scaffe.parallel.drive import lower_priority
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.joined_sums import JoinedSums
from scaffe.parallel.instances.memory import arrays_of
from scaffe.parallel.instances.pages import where
from scaffe.parallel.instances.places import Place, place, rank_cores
from scaffe.parallel.instances.topology import Topology, read_topology
from scaffe.parallel.world import World

T = TypeVar("T")
MOST_LINES = 64  # of instances in the log


class Team:
    """The instances of this rank. Making it is collective.

    - `places`: where they run, by instance; `size`: their number.
    - `first`, `total`: the number of this rank's first instance among all ranks' instances, and how many these are.
    - `crew`: their threads, None for a single instance, which the rank computes as ever.
    - `main`: what the rank's main thread is doing; `records`: what each instance is, for a single one the same.
    - `forms`: the parameters' forms that the instances' nets share.
    - `joined`: the sums over all instances of numbers that layers ask for.

    If one fails, all `breaks` are called with its error, so that no other waits for it. Raise ScaffeError where the
    instances do not fit the rank's cores.
    """

    def __init__(self, world: World, instances: Instances):
        def work() -> list[Place]:
            return places_of(world, instances)

        self.places = work() if instances.n == "1" else world.together(work)  # one fits any rank
        self.size, self._world = len(self.places), world
        sizes = [1] * world.size if instances.n == "1" else world.allgather(self.size)
        self.first, self.total = sum(sizes[: world.rank]), sum(sizes)
        self.sharers = _sharers(sizes)
        self.joined = JoinedSums(self.size, waiting=lambda: self.waiting(), computes=self._computes)
        self.breaks: list[Callable[[BaseException], object]] = [self.joined.break_off]
        self.main = world.record
        self.records = [self.main] if self.size == 1 else [RankRecord() for _ in self.places]
        self._rest()
        self._told_places = False
        self.forms = SharedForms()
        self.crew: Crew | None = None
        if self.size > 1:
            self.crew = Crew(
                self.places, self.break_off, instances.launch_groups, float(instances.launch_delay), self._prepare
            )

    def _prepare(self, instance: int) -> None:
        """Prepare an instance's thread."""
        self._world.take_record(self.records[instance])
        if self._world.size > 1:
            lower_priority()

    def _computes(self) -> bool:
        """Return whether the calling thread is an instance's, of several."""
        return self.crew is not None and self.crew.is_mine()

    def arrange(self, instances: Instances) -> None:
        """Take another launch delay, and forget the workflows, which have been closed."""
        del self.breaks[1:]
        if self.crew is not None:
            self.crew.delay = float(instances.launch_delay)

    def keep_forms(self, persistent: bool = True) -> AbstractContextManager[None]:
        """Return a block in which nets share their parameters' forms: an iteration, or a test.

        Unless `persistent`, users may write parameters meanwhile: a single instance then makes its own in each pass.
        """
        return self.forms.keep(persistent) if persistent or self.size > 1 else nullcontext()

    def begin(self, iteration: int, net: int = 0) -> None:
        """Begin an iteration of the train net, or a test by another net, numbered as in RankRecord."""
        self.joined.begin()
        for record in self.all_records:
            record.begin(iteration, net)
        self._rest()

    @property
    def all_records(self) -> list[RankRecord]:
        """That of the main thread, then those of the instances where there are several."""
        return [self.main, *(self.records if self.crew else [])]

    def _rest(self) -> None:
        """Record that the instances' threads have no work."""
        for record in self.records if self.size > 1 else []:
            record.rest()

    @contextmanager
    def at_work(self, operation: int) -> Iterator[None]:
        """Record that the instances do an operation, for which the main thread waits, and that they rest afterwards."""
        if self.crew is None:
            yield
            return
        self.main.at(operation)
        with self.main.waiting(INSTANCES):
            yield
        self._rest()

    def waiting(self) -> AbstractContextManager[object]:
        """Return a context manager in which the calling thread, an instance's, waits for other instances."""
        return self._world.record.waiting(INSTANCES)

    def build(self, make: Callable[[int], T]) -> list[T]:
        """Return make(instance) of all instances, instance 0's first; see Crew.build."""
        return self.crew.build(make) if self.crew else [make(0)]

    def threads(self, instance: int, given: int) -> int:
        """Return how many threads an instance computes with: those `given`, or one on each of its cores.

        A single instance computes with the rank's.
        """
        return given or (len(self.places[instance].cores) if self.crew else self._world.threads)

    def file_mark(self, instance: int) -> str:
        """Return the part of a file's name that differs between instances: .rank1of6, or "" for a single one."""
        if self._world.is_spare:
            return ".spare"
        return f".rank{self.first + instance}of{self.total}" if self.total > 1 else ""

    def tell_places(self, nets: Sequence[Net]) -> None:
        """Log, the first time, where each instance of each rank runs, and where its net's memory lies. Collective."""
        if self.total == self._world.size or self._told_places:
            return
        self._told_places = True
        mine = [where(one, arrays_of(net)) for one, net in zip(self.places, nets, strict=True)]
        ranks = enumerate(self._world.allgather(mine))
        lines = [f"rank {rank}, {line}" if self._world.size > 1 else line for rank, mine in ranks for line in mine]
        for line in lines[:MOST_LINES]:
            log.info("%s", line)
        if len(lines) > MOST_LINES:
            log.info("and %d more instances", len(lines) - MOST_LINES)

    def break_off(self, error: BaseException) -> None:
        """End all waits of instances for each other, since one has failed. Any thread can call it."""
        for one in self.breaks:
            one(error)

    def close(self) -> None:
        """End the threads."""
        if self.crew is not None:
            self.crew.close()


def places_of(world: World, instances: Instances) -> list[Place]:
    """Return the places of this rank's instances: a node's ranks divide its cores, then the instances their rank's."""
    if instances.n == "1":
        return [Place(0, 0, tuple(world.cores))]
    mine = own_topology(world)
    places = place(instances.n, mine, instances.oversubscribe)
    if len(places) > 1 and world.gpu is not None:
        raise on_gpu(len(places))
    return places


def own_topology(world: World) -> Topology:
    """Return the domains of this rank's part of its node's cores."""
    here = [rank for rank, (host, _) in enumerate(world.places) if host == world.host]
    masks = [world.places[rank][1] for rank in here]
    topology = read_topology(world.cores)
    return topology.only(rank_cores(masks, here.index(world.rank), topology))


def on_gpu(count: int) -> ScaffeError:
    """Return the error of several instances on a GPU."""
    return ScaffeError(
        f"{count} instances on a GPU: a rank with a GPU has one; start a rank for each GPU, or compute on the cores "
        "with --device cpu"
    )


def _sharers(sizes: list[int]) -> str:
    """Return how errors name those who divide a batch: "2 ranks x 3 instances"."""
    instances = str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    if max(sizes) == 1:
        return f"{len(sizes)} ranks"
    return f"{instances} instances" if len(sizes) == 1 else f"{len(sizes)} ranks x {instances} instances"
