"""SGD by oneDNN's binary addition: history = momentum * history + rate * (diff + decay * data) in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive
from scaffe.packed import PackedParameters
from scaffe.proto import SolverParameter
from scaffe.solvers import register
from scaffe.solvers.rule import Block
from scaffe.solvers.sgd import SGD


class OnednnSGD(SGD):
    """SGD with L2 decay over whole blocks; numpy computes the rest of each parameter, and L1 decay.

    Caffe leaves the update in the diff. Here the update is the history, which is copied into the diff on request.
    """

    block = 1 << 18  # elements; fewer calls save more time than a block that fits the cache

    def __init__(self, param: SolverParameter, packed: PackedParameters, engine: Onednn):
        super().__init__(param, packed)
        self.engine = engine
        self._rates = [Memory(engine, engine.plain((1,))) for _ in range(2)]
        self._made: tuple[Primitive, list[Memory]] | None = None
        self._updated = [0] * len(packed.parameters)  # elements of each parameter since its update began

    def apply(self, i: int, blocks: Sequence[Block], rate: float, decay: float, iteration: int) -> None:
        parameter = self.packed.parameters[i]
        if self.param.regularization_type != "L2" or parameter.sharers:
            return super().apply(i, blocks, rate, decay, iteration)
        self.engine.enter()
        self._rates[0].buffer[...] = rate / self.param.iter_size
        self._rates[1].buffer[...] = rate * decay
        for block in blocks:
            if block.data.size == self.block:
                self._run(block)
            else:
                self.apply_block(block, rate, decay, iteration)
            self.look_at(i, block)
        self._updated[i] += sum(block.data.size for block in blocks)
        if self._updated[i] == parameter.blob.count:  # earlier, other parts of the gradient are still needed
            self._updated[i] = 0
            velocity = self.packed.view(self.history[0], i)
            parameter.blob.diff_values.defer(lambda array: np.copyto(array, velocity))

    def _run(self, block: Block) -> None:
        primitive, memories = self._made = self._made or self._make(block)
        (velocity,) = block.history
        for memory, array in zip(memories, (block.diff, block.data, velocity), strict=True):
            memory.point(array)
        primitive.run()
        np.subtract(block.data, velocity, out=block.data)

    def _make(self, block: Block) -> tuple[Primitive, list[Memory]]:
        """Return the primitive dst = momentum * dst + rate * src + rate * decay * src_1, and the three memories."""
        engine, arrays = self.engine, (block.diff, block.data, *block.history)
        desc = engine.plain((self.block,))
        given = engine.handle, lib.BINARY_ADD, desc, desc, desc, engine.scaling(self.param.momentum)
        memories = [Memory(engine, desc, array) for array in arrays]
        arguments = dict(zip((lib.ARG_SRC, lib.ARG_SRC_1, lib.ARG_DST), memories, strict=True))
        arguments |= {lib.ARG_SCALES | arg: rate for arg, rate in zip(arguments, self._rates, strict=False)}
        return Primitive(engine, engine.describe("binary", *given, shapes=desc.shape), arguments), memories


register(OnednnSGD, engine="onednn")
