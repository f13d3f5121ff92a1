"""Built: the layers of a net over their blobs, checked, before their parameters are packed."""

from __future__ import annotations

from collections import OrderedDict

import scaffe.layers  # noqa: F401  registers the layers
from scaffe.blob import Blob
from scaffe.blobs.held import Held
from scaffe.blobs.packed import ParameterBlob
from scaffe.context import Context
from scaffe.engine import REFERENCE, Engine
from scaffe.errors import NetError
from scaffe.layers.base_data import BaseData
from scaffe.layers.layer import Layer, asks_for_plain_code, check_counts, create
from scaffe.monitor.log import log
from scaffe.net.checks import check_batch_splits, check_names, log_without_effect
from scaffe.net.graph import AUTOMATIC, LayerNode, followers, joins, labels, made_by, need_backward, outputs
from scaffe.proto import LayerParameter, NetParameter, Phase


class Built:
    """The layers of `param`, in which Splits are inserted, over their blobs; scaffe.net.Net takes what it has.

    - `layers`, `nodes`: each layer, and its part in the backward pass. `losses`: layer, top and weight of each loss.
    - `blobs`: by name. `bottoms`, `tops`: each layer's. `shapes`: of each layer's bottoms, as it is shaped for.
    - `parameters`: all of them, in the order of the layers. `inputs`, `outputs`: names of blobs.

    Raise NetError or ShapeError where it can't be built.
    """

    def __init__(self, param: NetParameter, context: Context, engine: Engine, held: Held):
        self.param, self.context, self.engine, self.held = param, context, engine, held
        self.blobs: OrderedDict[str, Blob] = OrderedDict()
        self.layers: list[Layer] = []
        self.bottoms: list[list[Blob]] = []
        self.tops: list[list[Blob]] = []
        self.shapes: list[list[tuple[int, ...]]] = []
        self.parameters: list[ParameterBlob] = []
        self.losses: list[tuple[int, int, float]] = []
        for layer, label in zip(self.param.layer, labels(self.param.layer), strict=True):
            if self.param.engine and not layer.engine:
                layer.engine = self.param.engine
            self._add_layer(layer, label)
        log_without_effect(self.param.layer, self.engine.name)
        for i, j in followers(self.param.layer).items():
            self.layers[i].follower, self.layers[i].follower_is_next = self.layers[j], j == i + 1
        for i, (j, k) in joins(self.param.layer).items():
            self.layers[i].joined = self.layers[j], k
        self.nodes = [self._node(i) for i in range(len(self.layers))]
        need_backward(self.nodes, self.param.force_backward)
        check_names(self.layers)
        check_batch_splits(self.context, self.layers, self.bottoms)
        self.outputs = outputs(self.nodes)
        self.inputs = [top for layer in self.param.layer if layer.type == "Input" for top in layer.top]
        self._weigh_losses()
        self._announce_labels()

    def _announce_labels(self) -> None:
        """Give data layers the classes of the layers that take their tops for labels."""
        for i, layer in enumerate(self.layers):
            if taken := layer.labels_taken():
                k, top = made_by(self.param.layer, i, 1)
                if isinstance(maker := self.layers[k], BaseData):
                    maker.accept(top, *taken)

    def _add_layer(self, param: LayerParameter, label: str) -> None:
        param.MergeFrom(LayerParameter(phase=Phase.Name(self.context.phase)))
        layer = create(param, self.context)
        layer.label = label
        if self.engine.name != REFERENCE and asks_for_plain_code(param):
            log.info("layer '%s' (%s) computes in numpy: it says engine: CAFFE", layer.name, layer.type)
        bottom = [self.blobs[name] for name in param.bottom]
        top = [self._top(param, name) for name in param.top]
        if layer.makes_top and not top:
            top.append(Blob((), self.engine.xp))
        check_counts(layer, bottom, top)
        layer.setup(bottom, top)
        layer.reshape(bottom, top)
        for blob in top:
            layer.check_size(blob.shape, "a top")
        self.layers.append(layer)
        self.bottoms.append(bottom)
        self.tops.append(top)
        self.shapes.append([blob.shape for blob in bottom])
        self._add_parameters(layer)

    def _top(self, param: LayerParameter, name: str) -> Blob:
        if name in self.blobs and name not in param.bottom:
            raise NetError(
                f"layer '{param.name}': another layer already produces its top '{name}'; give it another name"
            )
        blob = self.blobs.setdefault(name, Blob((), self.engine.xp))
        blob.held = self.held
        return blob

    def _add_parameters(self, layer: Layer) -> None:
        specs = layer.param.param
        if len(specs) > len(layer.blobs):
            raise layer.error(f"{len(specs)} param fields for {len(layer.blobs)} parameter blob(s)")
        for index, blob in enumerate(layer.blobs):
            blob.held = self.held
            spec = specs[index] if index < len(specs) else None
            parameter = ParameterBlob.from_spec(layer.name, index, blob, spec, index in layer.statistics)
            owner = parameter.join(self.parameters)
            layer.param_propagate_down.append(owner.rate != 0 or self.param.force_backward)

    def _node(self, i: int) -> LayerNode:
        layer, param = self.layers[i], self.param.layer[i]
        if param.propagate_down and len(param.propagate_down) != len(param.bottom):
            raise layer.error(f"{len(param.propagate_down)} propagate_down fields for {len(param.bottom)} bottoms")
        return LayerNode(
            bottoms=param.bottom,
            tops=list(param.top) or [AUTOMATIC] * len(self.tops[i]),
            learns=any(layer.param_propagate_down),
            is_loss=[layer.loss_weight(j) != 0 for j in range(len(self.tops[i]))],
            propagate_down=param.propagate_down,
            can_force=[layer.allows_force_backward(j) for j in range(len(param.bottom))],
        )

    def _weigh_losses(self) -> None:
        """Note the tops that make up the loss and let their diffs hold the weights."""
        for i, layer in enumerate(self.layers):
            for j, top in enumerate(self.tops[i]):
                if weight := layer.loss_weight(j):
                    self.losses.append((i, j, weight))
                    top.diff_array[...] = weight
