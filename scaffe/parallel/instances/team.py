"""Team: the instances of this rank, where they run, and the threads that run them.

Instance i of a rank is one of all ranks' instances, numbered rank by rank. A net's Context has this number for its
rank, so that shards, crops, dropout masks and shares of the loss are those of a run with so many ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from scaffe.errors import ScaffeError
from scaffe.monitor.record import RankRecord
from scaffe.parallel.drive import lower_priority
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.joined_sums import JoinedSums
from scaffe.parallel.instances.places import Place, place, rank_cores
from scaffe.parallel.instances.topology import read_topology
from scaffe.parallel.world import World

T = TypeVar("T")


class Team:
    """The instances of this rank. Making it is collective.

    - `places`: where they run, by instance; `size`: their number.
    - `first`, `total`: the number of this rank's first instance among all ranks' instances, and how many these are.
    - `crew`: their threads, None for a single instance, which the rank computes as ever.
    - `records`: what each is doing, by instance; instance 0's is the rank's.
    - `joined`: the sums over all instances of numbers that layers ask for.

    If one fails, all `breaks` are called with its error, so that no other waits for it. Raise ScaffeError where the
    instances do not fit the rank's cores.
    """

    def __init__(self, world: World, instances: Instances):
        self.places = world.together(lambda: places_of(world, instances))
        self.size, self._world = len(self.places), world
        sizes = [1] * world.size if instances.n == "1" else world.allgather(self.size)
        self.first, self.total = sum(sizes[: world.rank]), sum(sizes)
        self.sharers = _sharers(sizes)
        self.joined = JoinedSums(self.size)
        self.breaks: list[Callable[[BaseException], object]] = [self.joined.break_off]
        self.records = [world.record, *(RankRecord() for _ in self.places[1:])]
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

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        self.joined.begin()
        for record in self.records:
            record.begin(iteration)

    def build(self, make: Callable[[int], T]) -> list[T]:
        """Return make(instance) of all instances, each called in the instance's thread, so that it touches its memory.

        Instance 0's comes first: it fills what the process loads once, and reports what is wrong with all.
        """
        if self.crew is None:
            return [make(0)]
        made: dict[int, T] = {}

        def build(instance: int) -> None:
            if instance not in made:
                made[instance] = make(instance)

        self.crew.run(lambda instance: None if instance else build(0))
        self.crew.run(build)
        return [made[i] for i in range(self.size)]

    def threads(self, instance: int, given: int) -> int:
        """Return how many threads an instance computes with: those `given`, or one on each of its cores."""
        return given or len(self.places[instance].cores)

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
    here = [rank for rank, (host, _) in enumerate(world.places) if host == world.host]
    masks = [world.places[rank][1] for rank in here]
    topology = read_topology(world.cores)
    mine = topology.only(rank_cores(masks, here.index(world.rank), topology))
    places = place(instances.n, mine, instances.oversubscribe)
    if len(places) > 1 and world.gpu is not None:
        raise ScaffeError(
            f"{len(places)} instances on a GPU: a rank with a GPU has one; start a rank for each GPU, or "
            "compute on the cores with --device cpu"
        )
    return places


def _sharers(sizes: list[int]) -> str:
    """Return how errors name those who divide a batch: "2 ranks x 3 instances"."""
    instances = str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    if max(sizes) == 1:
        return f"{len(sizes)} ranks"
    return f"{instances} instances" if len(sizes) == 1 else f"{len(sizes)} ranks x {instances} instances"
