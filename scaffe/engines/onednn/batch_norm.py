"""BatchNorm by oneDNN's batch normalization, fused with the Scale and the ReLU that follow it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from scaffe.blob import Blob, Values, around
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm
from scaffe.engines.onednn.elementwise import OnednnReLU
from scaffe.engines.onednn.fusion import DeferredValues, move_result
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Gradient, Operand, assign, layout_of
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive
from scaffe.engines.onednn.scale import OnednnScale
from scaffe.layers.batch_norm import BatchNorm
from scaffe.layers.dropout import Dropout
from scaffe.layers.layer import Blobs, Layer, register


class BatchNormPrimitives(LayerPrimitives):
    """Normalise a bottom (N x C x ...), or compute a chain: BatchNorm with the Scale, the ReLU or both that follow.

    The backward pass of the first follower computes the gradients of the whole chain.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, self.shape = self.engine, bottom[0].shape
        if len(self.shape) < 2:
            raise NoFastForm("a bottom without channels on axis 1")
        self.in_place = bottom[0] is top[0]
        self.desc = layout_of(engine, bottom[0].values, self.shape, self.kind)
        channels = engine.plain(self.shape[1:2])
        self.mean, self.variance = Memory(engine, channels), Memory(engine, channels)
        self.x, self.dy = Operand(engine, self.desc), Operand(engine, self.desc)
        self.y = Memory(engine, self.desc)
        self.dx: Memory | None = None
        self.kept: Memory | None = None
        self.chain, self.together = self._fuse()
        self._prepare_between()

    def _fuse(self) -> tuple[list[Any], _Normalise]:
        """Return the longest chain of followers that oneDNN fuses, and its primitives.

        Raise NoFastForm where oneDNN has none for BatchNorm alone.
        """
        chain = self._followers()
        while chain:
            with suppress(NoFastForm):
                return chain, _Normalise(self, chain)
            chain = chain[:-1]
        return [], self.alone

    def _followers(self) -> list[Any]:
        """Return the layers that may be fused with this one; none where the values are in the plain layout."""
        scale: Any = self.layer.follower
        chain: list[Any] = []
        if self.desc == self.engine.plain(self.shape, self.kind):
            return chain
        if isinstance(scale, OnednnScale) and scale.by_channel(self.shape):
            chain.append(scale)
        relu = chain[-1].follower if chain else scale
        if isinstance(relu, OnednnReLU) and relu.slope == 0 and not _needs_own_gradient(relu):
            chain.append(relu)
        return chain

    @cached_property
    def alone(self) -> _Normalise:
        """The primitives of BatchNorm without its followers."""
        return _Normalise(self, [])

    def _prepare_between(self) -> None:
        """Prepare the forms of the blobs between the layers, of values and of gradients, from first to last."""
        values = [self._write_normalised, self._write_scaled][: len(self.chain)]
        self.between = [DeferredValues(self, write) for write in values]
        gradients = [self._write_normalised_diff, self._write_rectified_diff]
        if not isinstance(self.chain[0] if self.chain else None, OnednnScale):
            gradients = gradients[1:]
        self.between_diffs = [DeferredValues(self, write) for write in gradients[: len(self.chain)]]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        layer = self.layer
        self.source, target = self._places(bottom[0].values)
        if layer.use_sums:
            self.mean.buffer[...], self.variance.buffer[...] = layer.global_statistics()
        self.together.forward(self.source, target)
        if not layer.use_sums:
            layer.remember(self.mean.buffer, self.variance.buffer)
        result: Any = target
        for deferred in reversed(self.between):
            result = deferred.with_result(result)
        if result is target:
            assign(top[0].values, target)
        else:
            top[0].values.take_form(result)

    def _places(self, values: Values) -> tuple[Memory, Memory]:
        """Return the memories to read and to write. In place, a plain array stays the blob's, as users may hold it."""
        x = self.x.fetch(values)
        if self.in_place and (x.plain or x is self.y):
            self.kept = self.kept or Memory(self.engine, self.desc)
            self.kept.buffer.reshape(-1)[...] = x.buffer.reshape(-1)
            return self.kept, x
        return x, self.y

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0] and not move_result(top[0].diff_values, bottom[0].diff_values):
            assign(bottom[0].diff_values, self.alone.backward(self.source, self.dy.fetch(top[0].diff_values)))

    def backward_of(self, layer: Layer, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute the gradients of the whole chain for its first follower; pass on the top's gradient for another."""
        values, place = top[0].diff_values, self.chain.index(layer)
        deferred = values.form
        given = deferred.result if isinstance(deferred, DeferredValues) else None
        self.given = given if isinstance(given, Memory) else self.dy.fetch(values)
        if place:
            result = self.given
            result.hold()  # until the first follower reads it
        else:
            result = self.together.backward(self.source, self.given)
            if given is self.given:
                given.drop()
        if propagate_down[0]:
            bottom[0].diff_values.take_form(self.between_diffs[place].with_result(result))

    # Values and gradients of the blobs inside the chain, computed on request.

    def _view(self, array: Any) -> Any:
        return array.reshape(around(self.shape, 1))

    def _write_normalised(self, array: Any) -> None:
        self.source.store(array)
        values = self._view(array)
        values -= self.mean.buffer[:, None]
        values /= np.sqrt(self.variance.buffer + np.float32(self.layer.eps))[:, None]

    def _write_scaled(self, array: Any) -> None:
        self._write_normalised(array)
        values, (factors, *summands) = self._view(array), self.chain[0].blobs
        values *= factors.array[:, None]
        for summand in summands:
            values += summand.array[:, None]

    def _write_rectified_diff(self, array: Any) -> None:
        self.given.store(array)
        if isinstance(self.chain[-1], OnednnReLU):
            y = np.empty_like(array)
            self.together.target.store(y)
            array *= y > 0

    def _write_normalised_diff(self, array: Any) -> None:
        self._write_rectified_diff(array)
        values = self._view(array)
        values *= self.chain[0].blobs[0].array[:, None]


class _Normalise:
    """The forward and backward primitives of a BatchNorm with a chain of followers."""

    def __init__(self, owner: BatchNormPrimitives, chain: Sequence[Layer]):
        self.owner, norm, engine = owner, owner.layer, owner.engine
        self.blobs: list[Blob] = next((layer.blobs for layer in chain if isinstance(layer, OnednnScale)), [])
        self.learns = next((layer.param_propagate_down for layer in chain if isinstance(layer, OnednnScale)), [])
        flags = lib.NORM_GLOBAL_STATISTICS * norm.use_sums
        flags |= (0, lib.NORM_SCALE, lib.NORM_SCALE | lib.NORM_SHIFT)[len(self.blobs)]
        flags |= lib.NORM_RELU * any(isinstance(layer, OnednnReLU) for layer in chain)
        desc, channels = _by_rows(engine, owner.desc), engine.plain(owner.shape[1:2])
        given = engine.handle, lib.FORWARD_TRAINING, desc, desc, norm.eps, flags, engine.attributes
        on_forward = engine.describe("batch_normalization_forward", *given, shapes=owner.shape)
        back = engine.handle, lib.BACKWARD, desc, desc, desc, norm.eps, flags, on_forward, engine.attributes
        self.on_backward = engine.describe("batch_normalization_backward", *back, shapes=owner.shape)
        self.operands = [Operand(engine, channels) for _ in self.blobs]
        self.common = {lib.ARG_MEAN: owner.mean, lib.ARG_VARIANCE: owner.variance}
        workspace = on_forward.desc(lib.QUERY_WORKSPACE)
        if workspace.nbytes:
            self.common[lib.ARG_WORKSPACE] = Memory(engine, workspace)
        self.run_forward = Primitive(engine, on_forward, self.common)
        self.run_backward: Primitive | None = None

    def forward(self, source: Memory, target: Memory) -> None:
        """Compute the chain's top from BatchNorm's bottom."""
        run, self.target = self.run_forward, target
        run.bind(lib.ARG_SRC, source)
        run.bind(lib.ARG_DST, target)
        self._bind_operands(run, lib.ARG_SCALE, lib.ARG_SHIFT)
        run.run()

    def _bind_operands(self, run: Primitive, *arguments: int) -> None:
        for arg, operand, blob in zip(arguments, self.operands, self.blobs, strict=False):
            run.bind(arg, operand.fetch(blob.values))

    def backward(self, source: Memory, dy: Memory) -> Memory:
        """Return the gradient of the bottom, and add the gradients of Scale's parameters to their diffs."""
        run = self.run_backward or self._prepare_backward()
        run.memories[lib.ARG_DIFF_SRC].acquire()
        run.bind(lib.ARG_SRC, source)
        run.bind(lib.ARG_DIFF_DST, dy)
        self._bind_operands(run, lib.ARG_SCALE)
        run.run()
        for gradient, blob, learns in zip(self.gradients, self.blobs, self.learns, strict=True):
            if learns:
                gradient.add_to(blob)
        return run.memories[lib.ARG_DIFF_SRC]

    def _prepare_backward(self) -> Primitive:
        owner, engine = self.owner, self.owner.engine
        owner.dx = owner.dx or pooled(engine, owner.desc)
        self.gradients = [Gradient(engine, engine.plain(owner.shape[1:2])) for _ in self.blobs]
        memories = {lib.ARG_DIFF_SRC: owner.dx, **self.common}
        for arg, gradient in zip((lib.ARG_DIFF_SCALE, lib.ARG_DIFF_SHIFT), self.gradients, strict=False):
            memories[arg] = gradient.memory
        self.run_backward = Primitive(engine, self.on_backward, memories)
        return self.run_backward


def _by_rows(engine: Onednn, desc: Desc) -> Desc:
    """Return bfloat16 images with channels last as images of one row each: the same memory.

    Of large images oneDNN 3.2 computes the backward pass a third faster so. Other layouts are returned as they are.
    """
    if desc.kind == lib.F32 or len(desc.shape) != 4 or desc != engine.channels_last(desc.shape, desc.kind):
        return desc
    images, channels, rows, columns = desc.shape
    return engine.channels_last((images * rows, channels, 1, columns), desc.kind)


def _needs_own_gradient(relu: OnednnReLU) -> bool:
    """Return whether a layer behind changes the signs that Caffe's gradient of this ReLU reads; Dropout does not."""
    return relu.works_in_place and relu.is_overwritten and not isinstance(relu.follower, Dropout)


class OnednnBatchNorm(OnednnLayer, BatchNorm):
    """BatchNorm over the channels on axis 1."""

    primitives_type = BatchNormPrimitives


register("BatchNorm", OnednnBatchNorm, engine="onednn")
