"""Registry: the algorithms by name. Each stands in a file of this package, whose last line registers it.

Whoever needs names asks here: `make_schedule` and its errors, `--reduce`, the benchmark, tuning, the model, the table
in the documents and the tests that hold for every algorithm. A file that is added is found by all of them.
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

VERBS = ("reduce", "bcast", "allreduce")
UNLIKELY = 99


class StepInputs(NamedTuple):
    """What every plan is made of; `order` maps virtual ranks to ranks, `virtual` back."""

    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int


class Algorithm(ABC):
    """A family of schedules: the names that it answers to, the collectives that it can do, and its plans."""

    name: str  # as lists and errors show it
    about: str  # a line for the documents
    rounds: str  # messages, one after the other, of n chunks over P ranks, for the documents
    verbs: tuple[str, ...] = ("reduce", "bcast", "allreduce")
    likely: Mapping[str, int] = {}  # by verb: the place among those that may be fastest, 0 the first
    chunk_bytes: tuple[int, ...] = (16 << 10, 32 << 10, 60 << 10, 256 << 10, 1 << 20)  # worth searching
    between_nodes: tuple[str, ...] = ()  # verbs for which it may be fastest between the leaders of nodes

    @property
    def examples(self) -> tuple[str, ...]:
        """Names for lists in errors, help and documents."""
        return (self.name,)

    @property
    def samples(self) -> tuple[str, ...]:
        """Names that stand for all others in the tests over few ranks."""
        return self.examples

    def takes(self, name: str) -> bool:
        """Say whether `name` is one of this algorithm's, right or with wrong numbers."""
        return name == self.name

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the names that tuning times over so many ranks."""
        return (self.name,)

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return the names that the model's table has."""
        return (self.name,)

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the names that `tune --from-model` compares over `ranks` ranks; none by default."""
        return ()

    def order(self, group: Group, root: int) -> list[int]:
        """Return the ranks by virtual rank as suits the algorithm on a machine."""
        return group.order(root)

    def slot_elements(self, chunk: int, elements: int) -> int:
        """Return the length of a scratch slot."""
        return min(chunk, elements)

    @abstractmethod
    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> Steps:
        """Return the plan of collective `op`, one of `verbs`. Raise AlgorithmError for impossible numbers."""

    def refusal(self, verb: str, name: str) -> str:
        """Say that it can't do `verb`."""
        return f"{verb} has no algorithm '{name}'; known are {known(verb)}"

    def place(self, verb: str) -> tuple[int, str]:
        """Return what algorithms are sorted by: likely ones first."""
        return self.likely.get(verb, UNLIKELY), self.name


A = TypeVar("A", bound=Algorithm)
_registered: dict[str, Algorithm] = {}


def register(algorithm: type[A]) -> type[A]:
    """Make an algorithm known by its name; for use as a decorator. Raise ValueError for a name that is taken."""
    if algorithm.name in _registered and type(_registered[algorithm.name]).__module__ != algorithm.__module__:
        raise ValueError(f"two algorithms have the name '{algorithm.name}'")
    _registered[algorithm.name] = algorithm()
    return algorithm


@cache
def _discovered() -> tuple[Algorithm, ...]:
    """Import every file of the package; return what they registered."""
    for module in pkgutil.iter_modules(schedules.__path__, f"{schedules.__name__}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    return tuple(_registered.values())


def rediscover() -> None:
    """Forget what was found, so that files added since then are found as well."""
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
    """Return the algorithm that `name` is of. Raise AlgorithmError for an unknown one, or one that can't do `verb`.

    ValueError for a name that two algorithms take.
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
    """Return the documents' table of all algorithms, in Markdown."""
    lines = ["| name | collectives | rounds of n chunks over P ranks | what it is |", "|---|---|---|---|"]
    for each in algorithms():
        names = ", ".join(f"`{name}`" for name in each.examples)
        lines.append(f"| {names} | {', '.join(each.verbs)} | {each.rounds} | {each.about} |")
    return "\n".join(lines)
