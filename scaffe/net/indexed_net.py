"""IndexedNet: a built net's layers and blobs by name and by number, as pycaffe has them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from scaffe.blob import Blob
from scaffe.layers.layer import Layer
from scaffe.net.built_net import BuiltNet


class IndexedNet(BuiltNet):
    """Number a net's layers in the order of the prototxt, and its blobs in the order in which layers make them.

    The layers that Caffe inserts to split a blob count, and so do their tops. A loss without a top has no number.
    """

    @property
    def layer_dict(self) -> OrderedDict[str, Layer]:
        """The layers by name."""
        return OrderedDict((layer.name, layer) for layer in self.layers)

    @property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """Names of each layer's tops, by layer name."""
        return OrderedDict((param.name, list(param.top)) for param in self.param.layer)

    @property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """Names of each layer's bottoms, by layer name."""
        return OrderedDict((param.name, list(param.bottom)) for param in self.param.layer)

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """Each blob's weight in the loss, by name, 0 for those that are no part of it."""
        weights = {self.nodes[i].tops[j]: weight for i, j, weight in self.losses}
        return OrderedDict((name, weights.get(name, 0.0)) for name in self.blobs)

    @property
    def _layer_names(self) -> list[str]:
        return [layer.name for layer in self.layers]

    @property
    def _blob_names(self) -> list[str]:
        return list(self.blobs)

    @property
    def _blobs(self) -> list[Blob]:
        return list(self.blobs.values())

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self.blob_loss_weights.values())

    @property
    def _inputs(self) -> list[int]:
        """The numbers of the input blobs."""
        return self._numbers(self.inputs)

    @property
    def _outputs(self) -> list[int]:
        """The numbers of the output blobs."""
        return self._numbers(self.outputs)

    def _top_ids(self, layer: int) -> list[int]:
        """Return the numbers of a layer's tops."""
        return self._numbers(self.param.layer[layer].top)

    def _bottom_ids(self, layer: int) -> list[int]:
        """Return the numbers of a layer's bottoms."""
        return self._numbers(self.param.layer[layer].bottom)

    def _numbers(self, names: Iterable[str]) -> list[int]:
        numbers = {name: number for number, name in enumerate(self.blobs)}
        return [numbers[name] for name in names]
