"""LayerPasses: the passes of a built net layer by layer, as the training iteration calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

from scaffe.blobs.held import public
from scaffe.context import TRAIN
from scaffe.devices.choices import Work
from scaffe.engine import Group
from scaffe.errors import CallError, LabelError
from scaffe.layers.base_data import BaseData
from scaffe.net import failures
from scaffe.net.built_net import BuiltNet
from scaffe.net.callbacks import Callback, Callbacks
from scaffe.net.debug_info import DebugInfo, is_shown


class LayerPasses(BuiltNet):
    """Compute a net's layers, one at a time; a user's callbacks run before and after each.

    `debug_info`, at first the net's field, says whether Caffe's lines about the blobs are logged.
    """

    def _build(self) -> None:
        super()._build()
        self.debug_info = self.param.debug_info
        self.debug_lines = DebugInfo(self)

    def feed_layer(self, i: int) -> None:
        """Make layer i take its next batch, as the data layers of all ranks do where the root reads."""
        self.layers[i].feed()

    @public
    def forward_layer(self, i: int) -> None:
        """Compute layer i's tops, reshaped first if its bottoms have new shapes, or it asks for that."""
        layer, bottom, top = self.layers[i], self.bottoms[i], self.tops[i]
        shapes = [blob.shape for blob in bottom]
        if i == 0:
            self._begin_pass()
        if shapes != self._shapes[i] or layer.reshapes_always:
            self._shapes[i] = shapes
            self._reshape_layer(i)
        try:
            layer.forward(bottom, top)
        except Exception as error:  # a device's errors have no base of their own
            raise self._located(error, i) from None
        if self.debug_info and is_shown():
            self.debug_lines.forward(i)

    def _begin_pass(self) -> None:
        try:
            self.engine.begin_pass()
        except MemoryError as error:
            raise self._located(error, failures.fullest(self.bottoms, self.tops)) from None

    def _located(self, error: Exception, i: int) -> Exception:
        """Return an error of layer i's pass with what the net knows of it."""
        if isinstance(error, LabelError):
            return error.located(self.origin(error.row))
        return failures.located(error, self.layers[i], self.bottoms[i], self.tops[i], self.engine)

    @public
    def backward_layer(self, i: int) -> None:
        """Compute the gradients of layer i's bottoms and add those of its parameters, if any are needed."""
        node = self.nodes[i]
        try:
            if node.backward:
                self.layers[i].backward(self.tops[i], node.down, self.bottoms[i])
        except Exception as error:  # a device's errors have no base of their own
            raise self._located(error, i) from None
        if self.debug_info and is_shown():
            self.debug_lines.backward(i)
        if not self.keep_diffs:
            self._release_diffs(i)

    def _release_diffs(self, i: int) -> None:
        """Give up the gradients of layer i's tops: it was the last that read them, unless they are its bottoms too.

        One that a user holds stays, in memory of its own.
        """
        for top in self.tops[i]:
            if any(top is bottom for bottom in self.bottoms[i]):
                continue
            if self.held.holds(top, "diff_array"):
                top.own("diff_array")
            else:
                top.diff_values.release()

    def loss(self) -> float:
        """Return the loss of the last forward pass; with several ranks, this rank's part of it."""
        self._raise_faults()
        return sum(weight * float(self.tops[i][j].array.sum()) for i, j, weight in self.losses)

    def groups(self, starts: Iterable[int] = ()) -> list[Group]:
        """Return the layers in groups, each computed by one call of the engine; new groups begin at layers `starts`.

        With callbacks or debug info each layer is a group of its own.
        """
        return self.engine.groups(self, range(len(self.layers)) if self.callbacks or self.debug_info else starts)

    def suspects(self) -> list[str]:
        """Return the layers whose part of the loss of the last forward pass is not finite; if none is, all with one."""
        parts = {self.layers[i].label: float(self.tops[i][j].array.sum()) for i, j, _ in self.losses}
        return [name for name, part in parts.items() if not isfinite(part)] or list(parts)

    def _raise_faults(self) -> None:
        """Raise LabelError where the last forward pass met a label that is no class, unless it has raised that."""
        try:
            self.engine.raise_faults()
        except LabelError as error:
            raise error.located(self.origin(error.row)) from None

    def loss_weights(self) -> dict[str, float]:
        """Return the weights of the blobs that make up the loss."""
        return {self.nodes[i].tops[j]: weight for i, j, weight in self.losses}

    @public
    def clear_param_diffs(self) -> None:
        """Set all parameters' gradients to zero."""
        self.packed.clear_diffs()

    def _reshape_layer(self, i: int) -> None:
        self.engine.reshaped(self.layers[i])
        self.layers[i].reshape(self.bottoms[i], self.tops[i])
        for j, top in enumerate(self.tops[i]):
            if weight := self.layers[i].loss_weight(j):
                top.diff_array[...] = weight

    def origin(self, row: int) -> str:
        """Return the record that a row of the batch came from, "" where no layer knows."""
        return next(filter(None, (layer.origin(row) for layer in self.layers)), "")

    @property
    def trains(self) -> bool:
        """Whether the net's phase is TRAIN."""
        return self.context.phase == TRAIN

    @property
    def times_kernels(self) -> bool:
        """Whether its engine asks for kernels to be timed."""
        return self.engine.times_kernels

    @property
    def machine(self) -> str:
        """The device and libraries for which timed kernels are kept, "" where none are."""
        return self.engine.machine

    def works(self) -> Iterator[Mapping[str, Work]]:
        """Iterate over each layer's pieces of work by name."""
        for layer, node, bottom, top in zip(self.layers, self.nodes, self.bottoms, self.tops, strict=True):
            yield layer.works(bottom, top, any(node.down))

    def replan(self) -> None:
        """Make the layers choose their kernels anew, as the context's choices now say."""
        for layer in self.layers:
            layer.replan()
        self.engine.moved()

    def describe(self) -> Iterator[str]:
        """Iterate over a line per layer: its type, bottoms and tops with their shapes."""
        for i, node in enumerate(self.nodes):
            bottoms, tops = (
                ", ".join(f"{name} {blob.shape}" for name, blob in zip(names, blobs, strict=True))
                for names, blobs in ((node.bottoms, self.bottoms[i]), (node.tops, self.tops[i]))
            )
            yield f"{self.layers[i].name} ({self.layers[i].type}): {bottoms} -> {tops}".replace(":  ->", ": ->")

    def data_layers(self) -> Iterator[BaseData]:
        """Iterate over the layers that read records."""
        return (layer for layer in self.layers if isinstance(layer, BaseData))

    def close(self) -> None:
        """End the data layers' reader threads, and complete the files that layers write."""
        for layer in self.layers:
            layer.close()

    # Callbacks, as in pycaffe. They run in this net's passes on this rank, also in those of a solver's step; without
    # any, a pass calls forward_layer and backward_layer themselves.

    def before_forward(self, callback: Callback) -> None:
        """Call `callback(i)` before layer i computes, in each forward pass, after the callbacks added earlier."""
        self._around("forward_layer").before.append(_callable(callback))

    def after_forward(self, callback: Callback) -> None:
        """Call `callback(i)` after layer i has computed; on a GPU its work may still be under way."""
        self._around("forward_layer").after.append(_callable(callback))

    def before_backward(self, callback: Callback) -> None:
        """Call `callback(i)` before layer i's part of each backward pass, also where it has no gradient to compute."""
        self._around("backward_layer").before.append(_callable(callback))

    def after_backward(self, callback: Callback) -> None:
        """Call `callback(i)` after layer i's part of each backward pass, before its gradients are sent."""
        self._around("backward_layer").after.append(_callable(callback))

    def take_callbacks(self, other: LayerPasses) -> None:
        """Call the callbacks of `other`, whose place this net takes."""
        for name, theirs in other.callbacks.items():
            mine = self._around(name)
            mine.before += theirs.before
            mine.after += theirs.after

    def _around(self, method: str) -> Callbacks:
        """Return the callbacks around forward_layer or backward_layer; the first replaces the method by them."""
        if method not in self.callbacks:
            self.callbacks[method] = Callbacks(self.held, getattr(self, method))
            setattr(self, method, self.callbacks[method])
        return self.callbacks[method]


def _callable(callback: Callback) -> Callback:
    if not callable(callback):
        raise CallError(f"a callback must be a function of a layer's index, got {callback!r}")
    return callback
