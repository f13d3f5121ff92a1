"""BatchNorm by oneDNN, in one with the Scale and the ReLU that follow it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from scaffe.blob import Blob, Values, around
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.elementwise import OnednnReLU
from scaffe.engines.onednn.fusion import Ahead, hand_on
from scaffe.engines.onednn.plan import Gradient, Inlet, Plan, Planned, give, layout_of
from scaffe.engines.onednn.primitives import Memory, NoFastForm, Primitive, passing
from scaffe.engines.onednn.scale import OnednnScale
from scaffe.layers.batch_norm import BatchNorm
from scaffe.layers.dropout import Dropout
from scaffe.layers.layer import Blobs, Layer, register


class BatchNormPlan(Plan):
    """Compute alone, or a chain: Scale, ReLU or both behind. The gradients of a chain come with its first link's."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, self.shape = self.engine, bottom[0].shape
        if len(self.shape) < 2:
            raise NoFastForm("a bottom without channels on axis 1")
        self.in_place = bottom[0] is top[0]
        self.desc = layout_of(engine, bottom[0].values, self.shape)
        channels = engine.plain(self.shape[1:2])
        self.mean, self.variance = Memory(engine, channels), Memory(engine, channels)
        self.x, self.dy = Inlet(engine, self.desc), Inlet(engine, self.desc)
        self.y = Memory(engine, self.desc)
        self.dx: Memory | None = None
        self.kept: Memory | None = None
        self.chain, self.together = self._fuse()
        self._prepare_between()

    def _fuse(self) -> tuple[list[Any], _Normalise]:
        """Return the longest chain that there are primitives for. Raise NoFastForm where not even BatchNorm has one."""
        chain = self._links()
        while chain:
            with suppress(NoFastForm):
                return chain, _Normalise(self, chain)
            chain = chain[:-1]
        return [], self.alone

    def _links(self) -> list[Any]:
        """Return the layers behind that may be computed together with this one. Plain values are left as they are."""
        scale: Any = self.layer.follower
        links: list[Any] = []
        if self.desc == self.engine.plain(self.shape):
            return links
        if isinstance(scale, OnednnScale) and scale.by_channel(self.shape):
            links.append(scale)
        relu = links[-1].follower if links else scale
        if isinstance(relu, OnednnReLU) and relu.slope == 0 and not _reads_more(relu):
            links.append(relu)
        return links

    @cached_property
    def alone(self) -> _Normalise:
        """The primitives of BatchNorm without what follows."""
        return _Normalise(self, [])

    def _prepare_between(self) -> None:
        """Prepare what the blobs between the layers hold, tops and their gradients, from the first to the last."""
        shows = [self._show_normalised, self._show_scaled][: len(self.chain)]
        self.between = [Ahead(self, show) for show in shows]
        gradients = [self._show_normalised_diff, self._show_rectified_diff]
        if not isinstance(self.chain[0] if self.chain else None, OnednnScale):
            gradients = gradients[1:]
        self.between_diffs = [Ahead(self, show) for show in gradients[: len(self.chain)]]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        layer = self.layer
        self.source, target = self._places(bottom[0].values)
        if layer.use_sums:
            self.mean.buffer[...], self.variance.buffer[...] = layer.global_statistics()
        self.together.forward(self.source, target)
        if not layer.use_sums:
            layer.remember(self.mean.buffer, self.variance.buffer)
        then: Any = target
        for ahead in reversed(self.between):
            then = ahead.holding(then)
        if then is target:
            give(top[0].values, target)
        else:
            top[0].values.take_form(then)

    def _places(self, values: Values) -> tuple[Memory, Memory]:
        """Return where to read and where to write; what is plain stays where it is, since others may hold the array."""
        x = self.x.fetch(values)
        if self.in_place and (x.plain or x is self.y):
            self.kept = self.kept or Memory(self.engine, self.desc)
            self.kept.buffer.reshape(-1)[...] = x.buffer.reshape(-1)
            return self.kept, x
        return x, self.y

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0] and not hand_on(top[0].diff_values, bottom[0].diff_values):
            give(bottom[0].diff_values, self.alone.backward(self.source, self.dy.fetch(top[0].diff_values)))

    def backward_of(self, layer: Layer, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute all gradients for the chain's first link, pass on the top's for another."""
        values, place = top[0].diff_values, self.chain.index(layer)
        ahead = values.form
        given = ahead.then if isinstance(ahead, Ahead) else None
        self.given = given if isinstance(given, Memory) else self.dy.fetch(values)
        if place:
            then = self.given
            then.hold()  # until the first link needs it
        else:
            then = self.together.backward(self.source, self.given)
            if given is self.given:
                given.drop()
        if propagate_down[0]:
            bottom[0].diff_values.take_form(self.between_diffs[place].holding(then))

    # What the blobs between hold, for whoever looks.

    def _view(self, array: Any) -> Any:
        return array.reshape(around(self.shape, 1))

    def _show_normalised(self, array: Any) -> None:
        self.source.store(array)
        values = self._view(array)
        values -= self.mean.buffer[:, None]
        values /= np.sqrt(self.variance.buffer + np.float32(self.layer.eps))[:, None]

    def _show_scaled(self, array: Any) -> None:
        self._show_normalised(array)
        values, (factors, *summands) = self._view(array), self.chain[0].blobs
        values *= factors.array[:, None]
        for summand in summands:
            values += summand.array[:, None]

    def _show_rectified_diff(self, array: Any) -> None:
        self.given.store(array)
        if isinstance(self.chain[-1], OnednnReLU):
            y = np.empty_like(array)
            self.together.target.store(y)
            array *= y > 0

    def _show_normalised_diff(self, array: Any) -> None:
        self._show_rectified_diff(array)
        values = self._view(array)
        values *= self.chain[0].blobs[0].array[:, None]


class _Normalise:
    """The primitives of a BatchNorm with a chain of layers."""

    def __init__(self, plan: BatchNormPlan, chain: Sequence[Layer]):
        self.plan, layer, engine = plan, plan.layer, plan.engine
        self.blobs: list[Blob] = next((link.blobs for link in chain if isinstance(link, OnednnScale)), [])
        self.learns = next((link.param_propagate_down for link in chain if isinstance(link, OnednnScale)), [])
        flags = lib.NORM_GLOBAL_STATISTICS * layer.use_sums
        flags |= (0, lib.NORM_SCALE, lib.NORM_SCALE | lib.NORM_SHIFT)[len(self.blobs)]
        flags |= lib.NORM_RELU * any(isinstance(link, OnednnReLU) for link in chain)
        desc, channels = plan.desc, engine.plain(plan.shape[1:2])
        given = engine.handle, lib.FORWARD_TRAINING, desc, desc, layer.eps, flags, engine.attributes
        on_forward = engine.describe("batch_normalization_forward", *given, shapes=plan.shape)
        back = engine.handle, lib.BACKWARD, desc, desc, desc, layer.eps, flags, on_forward, engine.attributes
        self.on_backward = engine.describe("batch_normalization_backward", *back, shapes=plan.shape)
        self.operands = [Inlet(engine, channels) for _ in self.blobs]
        self.common = {lib.ARG_MEAN: plan.mean, lib.ARG_VARIANCE: plan.variance}
        workspace = on_forward.desc(lib.QUERY_WORKSPACE)
        if workspace.nbytes:
            self.common[lib.ARG_WORKSPACE] = Memory(engine, workspace)
        self.run_forward = Primitive(engine, on_forward, self.common)
        self.run_backward: Primitive | None = None

    def forward(self, source: Memory, target: Memory) -> None:
        run, self.target = self.run_forward, target
        run.bind(lib.ARG_SRC, source)
        run.bind(lib.ARG_DST, target)
        self._bind_operands(run, lib.ARG_SCALE, lib.ARG_SHIFT)
        run.run()

    def _bind_operands(self, run: Primitive, *arguments: int) -> None:
        for arg, inlet, blob in zip(arguments, self.operands, self.blobs, strict=False):
            run.bind(arg, inlet.fetch(blob.values))

    def backward(self, source: Memory, dy: Memory) -> Memory:
        """Return the gradient of the bottom, and add those of the parameters."""
        run = self.run_backward or self._prepare_backward()
        run.memories[lib.ARG_DIFF_SRC].taken()
        run.bind(lib.ARG_SRC, source)
        run.bind(lib.ARG_DIFF_DST, dy)
        self._bind_operands(run, lib.ARG_SCALE)
        run.run()
        for gradient, blob, learns in zip(self.gradients, self.blobs, self.learns, strict=True):
            if learns:
                gradient.add_to(blob)
        return run.memories[lib.ARG_DIFF_SRC]

    def _prepare_backward(self) -> Primitive:
        plan, engine = self.plan, self.plan.engine
        plan.dx = plan.dx or passing(engine, plan.desc)
        self.gradients = [Gradient(engine, engine.plain(plan.shape[1:2])) for _ in self.blobs]
        memories = {lib.ARG_DIFF_SRC: plan.dx, **self.common}
        for arg, gradient in zip((lib.ARG_DIFF_SCALE, lib.ARG_DIFF_SHIFT), self.gradients, strict=False):
            memories[arg] = gradient.memory
        self.run_backward = Primitive(engine, self.on_backward, memories)
        return self.run_backward


def _reads_more(relu: OnednnReLU) -> bool:
    """Say whether a ReLU's gradient is Caffe's by the signs that a layer behind gives its top, Dropout left out."""
    return relu.works_in_place and relu.is_overwritten and not isinstance(relu.follower, Dropout)


class OnednnBatchNorm(Planned, BatchNorm):
    """BatchNorm over the channels on axis 1."""

    plan_type = BatchNormPlan


register("BatchNorm", OnednnBatchNorm, engine="onednn")
