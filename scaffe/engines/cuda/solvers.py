"""The solvers' updates, each one launch for all parameters of an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.blob import on_host
from scaffe.blobs.packed import PackedParameters, ParameterBlob
from scaffe.devices.gpu import Late
from scaffe.engines.cuda.launcher import Launcher
from scaffe.proto import SolverParameter
from scaffe.solvers import adadelta, adagrad, adam, lars, nesterov, register, rmsprop, sgd
from scaffe.solvers.rule import Rule
from scaffe.solvers.updated import Updated

PIECE = 8192  # elements of a block: enough to use the memory's bandwidth, few enough that all blocks end together
PARTS = 256  # partial sums of squares for the norm of all gradients
NONE = np.uint64(0)  # a null pointer, for an array that a kernel does not get


class Pieces:
    """Parameters cut into pieces, one thread block each, as tables on the device.

    `begins` and `ends` are offsets in the packed arrays, in elements; `owners` are indices of parameters.
    """

    def __init__(self, xp: ModuleType, slices: Sequence[slice], indices: Sequence[int], part: slice):
        cut = [_cut(max(slices[i].start, part.start), min(slices[i].stop, part.stop)) for i in indices]
        owners = [i for i, pieces in zip(indices, cut, strict=True) for _ in pieces]
        begins = [begin for pieces in cut for begin, _ in pieces]
        ends = [end for pieces in cut for _, end in pieces]
        firsts = np.cumsum([0, *map(len, cut)])
        self.count, self.part = len(owners), part
        self.elements = [sum(end - begin for begin, end in pieces) for pieces in cut]  # of each of the parameters
        self.squares: list[Any] | None = None  # the sum of squares of each piece, for rules that need norms
        self.are_whole = self.elements == [slices[i].stop - slices[i].start for i in indices]
        self.numbers = np.array(owners, np.intp)
        self.owners, self.wanted, self.firsts = (xp.asarray(np.array(t, np.int32)) for t in (owners, indices, firsts))
        self.begins, self.ends = (xp.asarray(np.array(t, np.int64)) for t in (begins, ends))


def _cut(start: int, stop: int) -> list[tuple[int, int]]:
    """Return the begin and end of each piece between two offsets; all but the first begin at a multiple of PIECE."""
    marks = [start, *range((start // PIECE + 1) * PIECE, stop, PIECE), stop]
    return [*zip(marks[:-1], marks[1:], strict=True)] if start < stop else []


class CudaRule(Rule):
    """A rule whose whole update is one kernel.

    The results are the reference rule's, bit for bit, except that denormals become 0. The offsets of parameters and
    their multipliers are tables on the device, made once.
    """

    def __init__(self, param: SolverParameter, packed: PackedParameters, engine: Launcher):
        super().__init__(param, packed)
        self.engine = engine
        self._data, self._diff, parameters = packed.data, packed.diff, packed.parameters
        self._rates = self.table([p.rate for p in parameters])
        self._decays = self.table([param.weight_decay * p.decay for p in parameters])
        self._ratios: Any = NONE
        self._sums: Any = None
        self._factor: Any = None
        self._pieces: dict[tuple[tuple[int, ...], int, int], Pieces] = {}
        self._measured = tuple(i for i, parameter in enumerate(parameters) if parameter.statistic)
        self._found = self.table([0.0])  # 1 + the index of a parameter that is not finite
        self._on_its_way: Late | None = None

    def table(self, values: Sequence[float]) -> Any:
        """Return float64 numbers on the device."""
        return self.engine.gpu.xp.asarray(np.array(values, np.float64))

    def clip(self) -> None:
        """Clip in three launches; the norm stays on the device."""
        if not self.clips:
            return
        diff, xp = self.packed.diff, self.engine.gpu.xp
        if self._sums is None:
            self._sums, self._factor = xp.zeros(PARTS, np.float64), xp.zeros((), np.float32)
        limit, parts = np.float64(self.param.clip_gradients), self._sums.size
        self.engine.launch("solvers", "squares", (parts,), np.int64(diff.size), diff, self._sums)
        self.engine.launch("solvers", "clip_factor", (1,), self._sums, parts, limit, self._factor)
        self.engine.over("solvers", "clip", diff.size, diff, self._factor)

    def square_of(self, arrays: Sequence[Any]) -> float:
        """Return the sum of the squares of all elements; the host waits once."""
        sums = self.engine.gpu.xp.zeros((len(arrays), PARTS), np.float64)
        for k, array in enumerate(arrays):
            self.engine.launch("solvers", "squares", (PARTS,), np.int64(array.size), array, sums[k])
        return float(on_host(sums).sum())

    def look(self) -> None:
        """Check the statistics for finite values, and start the copy of what all checks found to the host."""
        pieces = self._cut_up(self._measured, self.packed.statistics)
        if pieces.count:
            tables = pieces.begins, pieces.ends, pieces.owners
            self.engine.launch("solvers", "look", (pieces.count,), self._data, *tables, self._found)
        if self._on_its_way is None:
            self._on_its_way = self.engine.gpu.late(self._found.size)
        self._on_its_way.send(self._found)

    def faulty(self) -> ParameterBlob | None:
        """Return the parameter found not to be finite up to the last `look`, None if all were."""
        number = int(self._on_its_way.read()[0]) if self._on_its_way else 0
        if not number:
            return None
        self._found[...] = 0
        self._on_its_way = None
        return self.packed.parameters[number - 1]

    def update(self, indices: Sequence[int], rate: float, iteration: int, part: slice | None = None) -> None:
        part = part or slice(0, self._data.size)
        for i in indices:  # not all: another thread may be computing the other gradients
            self.packed.settle(i)
            self.packed.parameters[i].blob.values.settle()
        pieces = self._cut_up(tuple(indices), part)
        if pieces.count:
            self.prepare(pieces)
            self.launch(pieces, rate, iteration)
            self.leave_update(indices, pieces)

    def leave_update(self, indices: Sequence[int], pieces: Pieces) -> None:
        """Leave the updates of these parameters in their gradients, as Caffe does; the kernel has, by default."""

    def _cut_up(self, indices: tuple[int, ...], part: slice) -> Pieces:
        """Return the pieces of those parameters in that part of the packed arrays."""
        key = indices, part.start, part.stop
        if key not in self._pieces:
            self._pieces[key] = Pieces(self.engine.gpu.xp, self.packed.slices, indices, part)
        return self._pieces[key]

    def prepare(self, pieces: Pieces) -> None:
        """Launch what must precede the update of these pieces; nothing by default."""

    def launch(self, pieces: Pieces, rate: float, iteration: int) -> None:
        """Launch the update of these pieces."""
        p = self.param
        ahead = np.int64(pieces.part.start - self.owned.place(pieces.part).start)
        history = *[*self.history, NONE][:2], ahead
        tables = pieces.begins, pieces.ends, self._rates, self._decays, self._ratios, pieces.owners, self._found
        momentum2 = p.rms_decay if self.kind == "RMSProp" else p.momentum2
        numbers = np.float64(rate), np.float64(self.scale(iteration)), *self._floats(p.momentum, momentum2, p.delta)
        arguments = self._data, self._diff, *history, *tables, *numbers, int(p.regularization_type == "L1")
        self.engine.launch("solvers", f"update_{self.kernel}", (pieces.count,), *arguments)

    @property
    def kernel(self) -> str:
        """The name of the rule in solvers.cu."""
        return self.kind

    def scale(self, iteration: int) -> float:
        """Return the factor of all rates in this iteration."""
        return 1.0

    def _floats(self, *values: float) -> list[np.float32]:
        return [np.float32(value) for value in (1 / self.param.iter_size, *values)]


class VelocityRule(CudaRule):
    """A rule whose update is its history. It is copied into the gradients on request; five arrays move, not six."""

    kernel = "SGD"

    def __init__(self, param: SolverParameter, packed: PackedParameters, engine: Launcher):
        super().__init__(param, packed, engine)
        self._updated = Updated(packed)
        self._copies = [partial(self.copy_history, i) for i in range(len(packed.parameters))]

    def leave_update(self, indices: Sequence[int], pieces: Pieces) -> None:
        for i, count in zip(indices, pieces.elements, strict=True):
            if self._updated.completes(i, count, self.owned_count(i)):
                parameter = self.packed.parameters[i]
                parameter.blob.diff_values.defer(self._copies[i])
                if parameter.sharers:  # whose gradients are in the same memory, and may have other shapes
                    self.packed.settle(i)


class CudaSGD(VelocityRule, sgd.SGD):
    """SGD with momentum."""


class CudaNesterov(CudaRule, nesterov.Nesterov):
    """Nesterov's accelerated gradient."""


class CudaAdaGrad(CudaRule, adagrad.AdaGrad):
    """AdaGrad."""


class CudaRMSProp(CudaRule, rmsprop.RMSProp):
    """RMSProp."""


class CudaAdaDelta(CudaRule, adadelta.AdaDelta):
    """AdaDelta."""


class CudaAdam(CudaRule, adam.Adam):
    """Adam."""

    def scale(self, iteration: int) -> float:
        return self._correction(iteration + 1)


class CudaLARS(VelocityRule, lars.LARS):
    """LARS: two launches for the norms, which stay on the device, then the update of SGD.

    The norms of parameters of which ranks have slices are joined on the host.
    """

    def join_norms(self, join: Callable[[np.ndarray], np.ndarray]) -> None:
        sgd.SGD.join_norms(self, join)
        squares, count = np.zeros((2, len(self.packed.parameters))), len(self.packed.parameters)
        for i in range(count):
            self.packed.settle(i)
        mine = [self._cut_up(self._within_part(part), part) for part in self.owned.ranges]
        measured = [self._measure(pieces) for pieces in mine]
        for pieces, both in zip(mine, measured, strict=True):
            for sums, found in zip(squares, both, strict=True):
                np.add.at(sums, pieces.numbers, on_host(found))
        self._squares = join(squares.reshape(-1)).reshape(2, -1)
        self._ratios = self.table([self.param.lars_trust * self._ratio(i) for i in range(count)])

    def _within_part(self, part: slice) -> tuple[int, ...]:
        """Return the parameters that have elements in a part of the packed arrays."""
        slices = enumerate(self.packed.slices)
        return tuple(i for i, one in slices if one.start < part.stop and part.start < one.stop)

    def _norms(self, i: int) -> tuple[float, float]:
        data, diff = np.sqrt(self._squares[:, i])
        return float(data), float(diff)

    def prepare(self, pieces: Pieces) -> None:
        if not pieces.are_whole:  # `join_norms` has found their ratios
            return
        if self._ratios is NONE:
            self._ratios = self.table([0.0] * len(self.packed.parameters))
        tables = *self._measure(pieces), pieces.wanted, pieces.firsts, self._decays, self._ratios
        numbers = *self._floats(), np.float64(self.param.lars_trust)
        self.engine.launch("solvers", "lars_ratios", (pieces.wanted.size,), *tables, *numbers)

    def _measure(self, pieces: Pieces) -> list[Any]:
        """Return the sums of the squares of the values, and of the gradients, of each piece."""
        if pieces.squares is None:
            pieces.squares = [self.table([0.0] * pieces.count) for _ in range(2)]
        arguments = self._data, self._diff, pieces.begins, pieces.ends, *pieces.squares
        self.engine.launch("solvers", "lars_squares", (pieces.count,), *arguments)
        return pieces.squares


for _rule in (CudaSGD, CudaNesterov, CudaAdaGrad, CudaRMSProp, CudaAdaDelta, CudaAdam, CudaLARS):
    register(_rule, engine="cuda")
