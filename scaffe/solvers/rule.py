"""Rule: the update rule of a solver, which turns a gradient into an update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isinf, sqrt
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from scaffe.blobs.finite import all_finite, first_faulty, has_finite_squares
from scaffe.blobs.packed import PackedParameters, ParameterBlob
from scaffe.errors import ScaffeError
from scaffe.proto import SolverParameter
from scaffe.solvers.owned import Owned

REGULARIZATIONS = ("L2", "L1")
Arrays = Sequence[np.ndarray]
Factor = Any  # a number for all elements of a block, or an array with each one's


class Block(NamedTuple):
    """Views of a range of elements of one parameter: values, gradients and history."""

    data: np.ndarray
    diff: np.ndarray
    history: Arrays


class Rule:
    """Apply Caffe's update to the packed parameters: clip, normalise, regularise, step.

    Subclasses set `slots`, the number of history values per element, and implement `step`. `history[k]` is a flat array
    with the layout of the packed parameters; a solver state stores them one after the other. On a rank that `keep`s the
    history of some ranges alone it has these, as `owned` says. Only a rank that holds the complete sums of the
    gradients calls `update`. Several threads may call it at once for different elements.

    An update consists of several elementwise operations. They run block by block, so that all but the first find
    their operands in the core's cache, and memory is read and written once. The block size does not change the
    results, bit for bit.

    A gradient that is not finite makes the element's value or history not finite. Each block is checked for it while it
    is in the cache; `faulty` returns what was found.
    """

    kind = ""
    slots = 1
    elementwise = True  # whether an element's update is independent of the parameter's other elements
    shows = False  # whether a history that is not finite makes the values so too; then only values are checked
    block = 1 << 15  # elements; the fastest of 2^11 to 2^17 on cores with 1 or 2 MiB of cache

    def __init__(self, param: SolverParameter, packed: PackedParameters):
        self.param, self.packed = param, packed
        self._require(
            "regularization_type", param.regularization_type in REGULARIZATIONS, f"one of {' '.join(REGULARIZATIONS)}"
        )
        if not isinstance(packed.flat, np.ndarray):  # on a device one block: a launch costs more than a cache miss
            self.block = max(1, packed.flat.size)
        self.owned = Owned([slice(0, int(packed.flat.size))])
        self.history = self._no_history()
        self._memory: dict[int, Arrays] = {}  # scratch, by thread
        self._blocks: dict[tuple[int, int], list[Block]] = {}
        self._owned_counts: dict[int, int] = {}
        self._faulty: int | None = None

    def _no_history(self) -> list[np.ndarray]:
        """Return the history before the first update. On the host its pages have no memory until they are written."""
        return [self.packed.xp.zeros(self.owned.count, np.float32) for _ in range(self.slots)]

    def keep(self, ranges: Sequence[slice]) -> None:
        """Update these ranges of the packed arrays alone from now on, and have no other history.

        What history there was goes, unless it is that of these ranges.
        """
        owned = Owned(ranges)
        if owned != self.owned or any(flat.size != owned.count for flat in self.history):
            self.owned, kept = owned, [flat.size == owned.count for flat in self.history]
            if not all(kept):
                self.history[:] = self._no_history()
            self._blocks.clear()
            self._owned_counts.clear()

    def owned_count(self, i: int) -> int:
        """Return how many elements of parameter i this rank updates."""
        if i not in self._owned_counts:
            self._owned_counts[i] = sum(part.stop - part.start for part in self.owned.within(self.packed.slices[i]))
        return self._owned_counts[i]

    def copy_history(self, i: int, array: np.ndarray) -> None:
        """Copy the first history value of parameter i's elements, as far as this rank has it, into an array."""
        start, values = self.packed.slices[i].start, array.reshape(-1)
        for part in self.owned.within(self.packed.slices[i]):
            values[part.start - start : part.stop - start] = self.history[0][self.owned.place(part)]

    def take(self, history: Iterable[np.ndarray]) -> None:
        """Go on with a history, host arrays, before the first update; on the host they become the rule's own."""
        self.history[:] = map(self.packed.xp.asarray, history)

    def blocks(self, i: int, part: slice | None = None) -> list[Block]:
        """Return the blocks of parameter i, or of its elements within `part` of the packed arrays."""
        return self._blocks_of(self.within(i, part))

    def _blocks_of(self, within: slice) -> list[Block]:
        """Return the blocks of a range of the packed arrays, cut once."""
        found = self._blocks.get((within.start, within.stop))
        if found is None:
            found = self._blocks[within.start, within.stop] = self._cut(within)
        return found

    def within(self, i: int, part: slice | None) -> slice:
        """Return the range of parameter i's elements in the packed arrays, or of those within `part`."""
        whole = self.packed.slices[i]
        return slice(max(whole.start, part.start), min(whole.stop, part.stop)) if part else whole

    def _cut(self, whole: slice) -> list[Block]:
        """Return a slice of the packed arrays as blocks."""
        starts = range(whole.start, whole.stop, self.block)
        return [self.view(slice(start, min(start + self.block, whole.stop))) for start in starts]

    def view(self, part: slice) -> Block:
        """Return the elements in this range of the packed arrays, which lies within one that this rank owns."""
        place = self.owned.place(part)
        history = [flat[place] for flat in self.history]
        return Block(self.packed.flat[part], self.packed.diff_of(part), history)

    def _scratch(self, count: int) -> Arrays:
        """Return two arrays of `count` elements with any content, which belong to the calling thread."""
        if (thread := get_ident()) not in self._memory:
            self._memory[thread] = [np.empty_like(self.packed.flat[: self.block]) for _ in range(2)]
        one, other = self._memory[thread]
        return one[:count], other[:count]

    def _require(self, field: str, holds: bool, expected: str) -> None:
        """Raise ScaffeError unless `holds`, with the field's value and the expected one."""
        if not holds:
            value = getattr(self.param, field)
            shown = f"{value:g}" if isinstance(value, float) else f"'{value}'"
            raise ScaffeError(f"solver type '{self.kind}': {field} must be {expected}, got {shown}")

    @property
    def clips(self) -> bool:
        """Whether gradients are clipped, which needs the gradients of all layers before the first update."""
        return self.param.clip_gradients >= 0

    def clip(self) -> None:
        """Scale all gradients so that their joint L2 norm is at most clip_gradients.

        Needs the complete sums of all layers; precedes the division by iter_size, as in Caffe.
        """
        if not self.clips:
            return
        limit = self.param.clip_gradients
        diff = self.packed.diff
        norm = norm_of(diff)
        if norm > limit:
            diff *= np.float32(limit / norm)

    def join_norms(self, join: Callable[[np.ndarray], np.ndarray]) -> None:
        """Clip as `clip` does, where each rank has the sums of the gradients that it owns. Collective.

        `join(values)` returns the sums of the values over all ranks.
        """
        if not self.clips:
            return
        mine = [self.packed.diff[part] for part in self.owned.ranges]
        (square,) = join(np.array([self.square_of(mine)]))
        limit, norm = self.param.clip_gradients, sqrt(square)
        if norm > limit:
            for part in mine:
                part *= np.float32(limit / norm)

    def square_of(self, arrays: Arrays) -> float:
        """Return the sum of the squares of all elements of flat arrays."""
        return sum(norm_of(array) ** 2 for array in arrays)

    def update(self, indices: Sequence[int], rate: float, iteration: int, part: slice | None = None) -> None:
        """Update the parameters `indices`: turn their gradients into updates and subtract them from the values.

        An elementwise rule can be restricted to a `part` of the packed arrays.
        """
        self.update_each(indices, rate, iteration, part)

    def update_each(self, indices: Sequence[int], rate: float, iteration: int, part: slice | None) -> None:
        """Update one parameter after the other, in the order of `indices`."""
        for i in indices:
            self.packed.settle(i)
            decay, within = self.param.weight_decay * self.packed.parameters[i].decay, self.within(i, part)
            self.packed.changed(within)
            self.apply(i, self._blocks_of(within), self.local_rate(i, rate), decay, iteration)

    def apply(self, i: int, blocks: Sequence[Block], rate: float, decay: float, iteration: int) -> None:
        """Update the `blocks` of parameter i with its own rate and decay."""
        for block in blocks:
            self.apply_block(block, rate, decay, iteration)
            self.look_at(i, block)

    def apply_block(self, block: Block, rate: Factor, decay: Factor, iteration: int) -> None:
        """Update one block."""
        if self.param.iter_size > 1:
            np.multiply(block.diff, np.float32(1 / self.param.iter_size), out=block.diff)
        scratch = self._scratch(block.data.size)
        self._regularise(block.data, block.diff, decay, scratch[0])
        self.step(block.diff, block.history, scratch, rate, iteration)
        np.subtract(block.data, block.diff, out=block.data)

    def look_at(self, i: int, block: Block) -> None:
        """Record parameter i as faulty if an updated block of it is not finite."""
        for array in (block.data,) if self.shows else (block.data, *block.history):
            if not has_finite_squares(array) and self._faulty is None and not all_finite(array):
                self._faulty = i

    def look(self) -> None:
        """Record the first statistic that is not finite as faulty. Called at the end of each iteration."""
        if self._faulty is None:
            self._faulty = first_faulty(self.packed, self.packed.flat, self.packed.statistics)

    def faulty(self) -> ParameterBlob | None:
        """Return a parameter found not finite since the last call, None if there is none."""
        found, self._faulty = self._faulty, None
        return None if found is None else self.packed.parameters[found]

    def local_rate(self, i: int, rate: float) -> float:
        """Return the learning rate of parameter i. Its gradient is complete, but not yet normalised."""
        return rate * self.packed.parameters[i].rate

    def step(self, diff: np.ndarray, history: Arrays, scratch: Arrays, rate: float, iteration: int) -> None:
        """Overwrite the gradient `diff` with the update to subtract, and update `history`.

        All arrays are float32 of the same length, blocks of one parameter. The two `scratch` arrays may be overwritten.
        """
        raise NotImplementedError

    def _regularise(self, data: np.ndarray, diff: np.ndarray, decay: Factor, scratch: np.ndarray) -> None:
        if isinstance(decay, float) and not np.float32(decay):
            return
        if self.param.regularization_type == "L1":
            np.sign(data, out=scratch)
            scratch *= np.float32(decay)
        else:
            np.multiply(data, np.float32(decay), out=scratch)
        diff += scratch


def blend(history: np.ndarray, keep: float, values: np.ndarray) -> None:
    """Set `history` to keep * history + (1 - keep) * values; `values` are overwritten."""
    history *= np.float32(keep)
    values *= np.float32(1) - np.float32(keep)
    history += values


def norm_of(values: np.ndarray) -> float:
    """Return the L2 norm of a flat array; in double precision if the sum of squares overflows single precision."""
    square = float(np.dot(values, values))
    if isinf(square):
        double = values.astype(np.float64)
        square = float(np.dot(double, double))
    return sqrt(square)


def root(squares: np.ndarray, delta: float, out: np.ndarray) -> np.ndarray:
    """Return sqrt(squares) + delta, in `out`."""
    np.sqrt(squares, out=out)
    out += np.float32(delta)
    return out
