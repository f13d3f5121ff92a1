"""Registry: the algorithms by name. Each is in a file of this package, which registers it in its last lines.

The registry gives the names to `make_schedule` and its errors, `--reduce`, the benchmark, tuning, the model, the
documentation's table and the tests of every algorithm. All of them find a file that is added.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from collectives import schedules
from collectives.errors import AlgorithmError
from collectives.schedules.schedule import Steps

if TYPE_CHECKING:
    from collectives.group import Group
    from collectives.model.clusters import Cluster

UNLIKELY = 99


class StepInputs(NamedTuple):
    """What an algorithm computes the steps of a rank from.

    `order` maps virtual ranks to ranks, `virtual` maps ranks back. `elements` is the vectors' length, `chunk` the most
    elements in a message, `depth` the chunks of scratch for each child. `bounds` says where the ranks' blocks begin.
    `blockwise`: no message has sums of several blocks.
    """

    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int
    bounds: Sequence[int]
    blockwise: bool = False

    @property
    def whole(self) -> tuple[Sequence[int], Sequence[int], int, int, int]:
        """Return what an algorithm without blocks needs: all but the bounds."""
        return self[:5]


class CollectiveTime(NamedTuple):
    """A collective's seconds, those in which its busiest rank sends or receives, and the algorithm and its chunk."""

    seconds: float
    busy: float
    algorithm: str
    chunk: int


class Algorithm(ABC):
    """A family of schedules: its names, the collectives that it can do, and the steps of each rank."""

    name: str  # in lists and errors
    about: str  # a line for the documentation
    rounds: str  # consecutive messages of n chunks over P ranks, for the documentation
    verbs: tuple[str, ...] = ("reduce", "bcast", "allreduce")
    likely: Mapping[str, int] = {}  # by collective: the rank among those that may be fastest, from 0
    chunk_bytes: tuple[int, ...] = (16 << 10, 32 << 10, 60 << 10, 256 << 10, 1 << 20)  # the sizes that tuning tries
    most_depth = 4  # chunks of scratch for each child: enough to hide an addition, few enough to stay in cache
    between_nodes: tuple[str, ...] = ()  # collectives for which it may be fastest between the leaders of nodes
    neighbours = False  # whether each rank sends to the next one only, so that one rank's data leaves a node

    @property
    def examples(self) -> tuple[str, ...]:
        """Return names for lists in errors, help and documentation."""
        return (self.name,)

    @property
    def samples(self) -> tuple[str, ...]:
        """Return names that represent all others in tests over few ranks."""
        return self.examples

    def takes(self, name: str) -> bool:
        """Return whether `name` belongs to this algorithm, with right or wrong numbers."""
        return name == self.name

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the names that tuning times over `ranks` ranks."""
        return (self.name,)

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return the names in the model's table."""
        return (self.name,)

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the names that `tune --from-model` compares over `ranks` ranks; none by default."""
        return ()

    def cost(self, verb: str, name: str, links: Cluster, ranks: int, nbytes: int, chunk: int) -> CollectiveTime | None:
        """Return the closed form of a verb's time in chunks of so many bytes, over ranks that fill node after node.

        None, the default: there is none. `collectives.model.cost` then counts the steps.
        """
        return None

    def order(self, group: Group, root: int) -> list[int]:
        """Return the ranks of `group` by virtual rank, as suits the algorithm, the root first where there is one."""
        return group.order(root)

    def slot_elements(self, chunk: int, elements: int) -> int:
        """Return the length of a scratch slot, in elements."""
        return min(chunk, elements)

    @abstractmethod
    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> Steps:
        """Return the steps of collective `op`, one of `verbs`. Raise AlgorithmError for impossible numbers."""

    def refusal(self, verb: str, name: str) -> str:
        """Return the error's text for a collective that the algorithm can't do."""
        return f"{verb} has no algorithm '{name}'; known are {known(verb)}"

    def place(self, verb: str) -> tuple[int, str]:
        """Return the sort key: likely algorithms first, then by name."""
        return self.likely.get(verb, UNLIKELY), self.name


A = TypeVar("A", bound=Algorithm)
_registered: dict[str, Algorithm] = {}


def register(algorithm: type[A]) -> type[A]:
    """Register an algorithm under its name; a class decorator. Raise ValueError for a name that is taken."""
    if algorithm.name in _registered and type(_registered[algorithm.name]).__module__ != algorithm.__module__:
        raise ValueError(f"two algorithms have the name '{algorithm.name}'")
    _registered[algorithm.name] = algorithm()
    return algorithm


@cache
def _discovered() -> tuple[Algorithm, ...]:
    """Import every file of the package; return the registered algorithms."""
    for module in pkgutil.iter_modules(schedules.__path__, f"{schedules.__name__}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    return tuple(_registered.values())


def rediscover() -> None:
    """Forget what was found, so that files added since then are found too."""
    for found in (_discovered, algorithms, find):
        found.cache_clear()


@cache
def algorithms(verb: str | None = None) -> tuple[Algorithm, ...]:
    """Return all algorithms, or those that can do `verb`, likely ones first."""
    found = [each for each in _discovered() if verb is None or verb in each.verbs]
    return tuple(sorted(found, key=lambda each: each.place(verb or "reduce")))


def known(verb: str | None = None) -> str:
    """Return the names as errors and help list them."""
    return ", ".join(name for each in algorithms(verb) for name in each.examples)


@cache
def find(name: str, verb: str | None = None) -> Algorithm:
    """Return the algorithm of `name`.

    Raise AlgorithmError for an unknown name, and for an algorithm that can't do `verb`. Raise ValueError for a name
    that two algorithms take.
    """
    takers = [each for each in _discovered() if each.takes(name)]
    if not takers:
        raise AlgorithmError(f"unknown algorithm '{name}'; known are {known(verb)}")
    if len(takers) > 1:
        raise ValueError(f"'{name}' is a name of two algorithms, {takers[0].name} and {takers[1].name}")
    if verb is not None and verb not in takers[0].verbs:
        raise AlgorithmError(takers[0].refusal(verb, name))
    return takers[0]


def table() -> str:
    """Return the documentation's table of all algorithms, in Markdown."""
    lines = ["| name | collectives | rounds of n chunks over P ranks | what it is |", "|---|---|---|---|"]
    for each in algorithms():
        names = ", ".join(f"`{name}`" for name in each.examples)
        lines.append(f"| {names} | {', '.join(each.verbs)} | {each.rounds} | {each.about} |")
    return "\n".join(lines)
