"""SGD by oneDNN's binary addition: history = momentum * history + rate * (diff + decay * data) in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from threading import get_ident
from typing import Any

import numpy as np

from scaffe.blobs.finite import has_finite_squares
from scaffe.blobs.packed import PackedParameters
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.neighbours import MOST, Neighbours, neighbours
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive
from scaffe.proto import SolverParameter
from scaffe.solvers import register
from scaffe.solvers.rule import Block
from scaffe.solvers.sgd import SGD
from scaffe.solvers.updated import Updated

SMALL = 1 << 13  # elements; fewer are computed by numpy in less time
_size = attrgetter("data.size")


class OnednnSGD(SGD):
    """SGD with L2 decay of large parameters; numpy computes small ones, neighbours at once, and L1 decay.

    numpy rounds more often. So all of a parameter is computed in one way, however it is cut. With bfloat16 the
    primitive computes smaller parameters too.

    Caffe leaves the update in the diff. Here the update is the history, which is copied into the diff on request.
    """

    block = 1 << 18  # elements; fewer calls save more time than a block that fits the cache

    def __init__(self, param: SolverParameter, packed: PackedParameters, engine: Onednn):
        super().__init__(param, packed)
        self.engine = engine
        self.least = self.block if engine.kind == lib.F32 else SMALL  # elements of a parameter for the primitive
        self._additions: dict[tuple[int, int], BlockAddition] = {}  # by thread and number of elements
        self._updated = Updated(packed)
        self._runs: dict[tuple[Any, ...], list[Neighbours]] = {}  # by parameters and part

    def keep(self, ranges: Sequence[slice]) -> None:
        super().keep(ranges)
        self._runs.clear()

    def update_each(self, indices: Sequence[int], rate: float, iteration: int, part: slice | None) -> None:
        key = (*indices, part and (part.start, part.stop))
        if key not in self._runs:
            self._runs[key] = neighbours(self, indices, part, min(MOST, self.least - 1))
        for run in self._runs[key]:
            if len(run.indices) == 1:
                super().update_each(run.indices, rate, iteration, part)
            else:
                self._update_together(run, rate, iteration)

    def _update_together(self, run: Neighbours, rate: float, iteration: int) -> None:
        """Update small parameters by numpy, bit for bit as one by one."""
        for i in run.indices:
            self.packed.settle(i)
        self.packed.changed(run.within)
        self.apply_block(run.block, *run.factors(rate, self.param.weight_decay), iteration)
        if not has_finite_squares(run.block.data):
            for i in run.indices:
                self.look_at(i, self.view(self.within(i, run.within)))

    def apply(self, i: int, blocks: Sequence[Block], rate: float, decay: float, iteration: int) -> None:
        parameter = self.packed.parameters[i]
        if self.param.regularization_type != "L2" or parameter.sharers:
            return super().apply(i, blocks, rate, decay, iteration)
        self.engine.visit()
        is_large = parameter.blob.count >= self.least
        for block in blocks:
            if is_large:
                self._add(block, rate / self.param.iter_size, rate * decay)
            else:
                self.apply_block(block, rate, decay, iteration)
            self.look_at(i, block)
        if self._updated.completes(i, sum(map(_size, blocks)), self.owned_count(i)):
            parameter.blob.diff_values.defer(partial(self.copy_history, i))

    def _add(self, block: Block, rate: float, decay: float) -> None:
        if (key := (get_ident(), block.data.size)) not in self._additions:
            self._additions[key] = BlockAddition(self.engine, self.param.momentum, block)
        (velocity,) = block.history
        self._additions[key].run(block, rate, decay)
        np.subtract(block.data, velocity, out=block.data)


class BlockAddition:
    """The primitive dst = momentum * dst + rate * src + decay * src_1, for one thread and blocks of one size."""

    def __init__(self, engine: Onednn, momentum: float, block: Block):
        desc = engine.plain(block.data.shape)
        given = engine.handle, lib.BINARY_ADD, desc, desc, desc, engine.scaling(momentum)
        self._rates = [Memory(engine, engine.plain((1,))) for _ in range(2)]
        self._memories = [Memory(engine, desc, array) for array in (block.diff, block.data, *block.history)]
        arguments = dict(zip((lib.ARG_SRC, lib.ARG_SRC_1, lib.ARG_DST), self._memories, strict=True))
        arguments |= {lib.ARG_SCALES | arg: rate for arg, rate in zip(arguments, self._rates, strict=False)}
        self._primitive = Primitive(engine, engine.describe("binary", *given, shapes=desc.shape), arguments)

    def run(self, block: Block, rate: float, decay: float) -> None:
        """Set a block's history."""
        self._rates[0].buffer[...] = rate
        self._rates[1].buffer[...] = decay
        for memory, array in zip(self._memories, (block.diff, block.data, *block.history), strict=True):
            memory.point(array)
        self._primitive.run()


register(OnednnSGD, engine="onednn")
