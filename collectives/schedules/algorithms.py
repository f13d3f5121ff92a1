"""Schedules by name: the verbs that have some, over trees, rings and halving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from collectives.errors import AlgorithmError
from collectives.schedules.levels import IN_TURN
from collectives.schedules.registry import Algorithm, StepInputs, find, known
from collectives.schedules.schedule import Schedule
from collectives.verbs import bounds_of, even_bounds, scheduled

if TYPE_CHECKING:
    from collectives.group import Group

DEPTH = Algorithm.most_depth
OTHERS = ("auto", "mpi", "slices", "nccl")  # names that a Communicator has besides schedules
LEADERS = "leaders-"  # before a schedule's name, or mpi: each rank of a node carries its slice between nodes


class Choice(NamedTuple):
    """An algorithm, its chunk in bytes (0: the executor's default), and the reason."""

    algorithm: str
    chunk_bytes: int = 0
    why: str = ""

    def __str__(self) -> str:
        """Return the algorithm and its chunk."""
        return self.algorithm + (f" in chunks of {self.chunk_bytes} bytes" if self.chunk_bytes else "")


def make_schedule(
    op: str,
    algorithm: str,
    size: int,
    elements: int,
    *,
    chunk: int = 1 << 16,
    root: int = 0,
    chain_size: int | None = None,
    order: Sequence[int] | None = None,
    depth: int = DEPTH,
    counts: Sequence[int] | None = None,
    blockwise: bool = False,
) -> Schedule:
    """Return the schedule of `op`, the name of a verb such as "reduce", over `size` ranks.

    - `algorithm`: a registered name (`collectives.schedules.registry`), such as "chain", "cb-8" or "cb-8:levels".
    - `elements`: the length of the vectors; `chunk`: the most elements in a message.
    - `root`: the root's rank; also of an allreduce over trees.
    - `chain_size`: ranks in a group of a hierarchy, if the name has none.
    - `order`: the ranks by virtual rank, the root first (`Group.order`, `Group.round_robin`); a circle by default.
    - `depth`: chunks of scratch for each child, at least 2.
    - `counts`: the lengths of the ranks' blocks; nearly equal by default. Only reduce_scatter and allgather have any.
    - `blockwise`: no message has sums of several blocks, so that all ranks get and pass on a sum in the same piece.

    Raise AlgorithmError for an unknown name and for impossible numbers.
    """
    _check_numbers(op, size=(size, 1), elements=(elements, 0), chunk=(chunk, 1), depth=(depth, 2))
    bounds = _bounds(scheduled(op).name, size, elements, counts)
    order = _numbering(op, size, root, order)
    found = find(algorithm, op)
    inputs = StepInputs(order, _inverse(order), elements, chunk, depth, bounds, blockwise)
    steps = found.steps(op, algorithm, inputs, chain_size)
    name = algorithm if chain_size is None else f"{algorithm}, chain size {chain_size}"
    return Schedule(op, name, size, elements, chunk, root, depth, found.slot_elements(chunk, elements), bounds, steps)


def check_algorithm(op: str, algorithm: str, chain_size: int | None = None) -> None:
    """Raise AlgorithmError, with the known names, unless a Communicator's `op` has the algorithm."""
    name = with_chain_size(algorithm, chain_size)
    if name in OTHERS or name == f"{LEADERS}mpi":
        return
    try:
        make_schedule(op, name.removeprefix(LEADERS), 1, 0)
    except AlgorithmError as error:
        others = f"{', '.join(OTHERS)} and {LEADERS}NAME"
        raise AlgorithmError(f"{error}; besides these schedules there are {others}") from None


def order_for(algorithm: str, group: Group, root: int = 0) -> list[int]:
    """Return the ranks of `group` by virtual rank, as suits `algorithm`. Raise AlgorithmError for an unknown one."""
    return find(algorithm).order(group, root)


def every_name() -> str:
    """Return all names that a Communicator takes, as help texts list them."""
    return f"{', '.join(OTHERS)}, {known()}, {LEADERS}NAME"


def with_chain_size(algorithm: str, chain_size: int | None) -> str:
    """Return the name with the chain size in it: cb-8:levels for cb:levels and 8."""
    name, in_turn, _ = algorithm.partition(IN_TURN)
    return algorithm if chain_size is None else f"{name}-{chain_size}{in_turn}"


def downwards(algorithm: str) -> str:
    """Return the broadcast's algorithm for a reduce by this one: the same tree, all levels at once."""
    return algorithm.removesuffix(IN_TURN)


def _check_numbers(op: str, **numbers: tuple[int, int]) -> None:
    """Raise AlgorithmError for a number below its minimum."""
    for name, (value, least) in numbers.items():
        if value < least:
            raise AlgorithmError(f"{op}: {name} is {value}; it must be at least {least}")


def _numbering(op: str, size: int, root: int, order: Sequence[int] | None) -> Sequence[int]:
    """Return the ranks by virtual rank: `order`, or a circle from the root."""
    if not 0 <= root < size:
        raise AlgorithmError(f"{op}: root {root} is not one of {size} ranks")
    if order is None:
        return [*range(root, size), *range(root)]
    if len(order) != size or order[0] != root or sorted(order) != list(range(size)):
        raise AlgorithmError(f"{op}: order must list each of {size} ranks once, root {root} first")
    return order


def _bounds(op: str, size: int, elements: int, counts: Sequence[int] | None) -> Sequence[int]:
    """Return the bounds of the ranks' blocks. Raise AlgorithmError for counts that don't make up the vector."""
    if counts is None:
        return even_bounds(elements, size)
    if len(counts) != size or min(counts) < 0 or sum(counts) != elements:
        raise AlgorithmError(
            f"{op}: counts must be {size} numbers from 0 on with the sum {elements}, got {len(counts)} with the sum "
            f"{sum(counts)}"
        )
    return bounds_of(counts)


def _inverse(order: Sequence[int]) -> list[int]:
    """Return the virtual rank of each rank."""
    virtual = [0] * len(order)
    for v, rank in enumerate(order):
        virtual[rank] = v
    return virtual
