"""The net to fine-tune: another net's layers, with scores of new classes, over pictures of two lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scaffe.errors import ScaffeError
from scaffe.net.graph import filter_layers
from scaffe.proto import LayerParameter, NetParameter, NetState, TransformationParameter

SUFFIX = "_new"  # of the layer of the scores: weights of the old one aren't copied
RATE = 10  # of the new layer, as many times that of the others
LOSS, LABEL, PROB = "SoftmaxWithLoss", "label", "prob"
SCORING = ("InnerProduct", "Convolution")
MEASURES = ("Accuracy", "Silence")


class PictureSource(NamedTuple):
    """Where the pictures come from, and how they become the net's input."""

    root: str
    train_list: str
    test_list: str
    resize: tuple[int, int]  # height and width, before the crop
    grey: bool
    transform: TransformationParameter  # of tests
    mirror: bool
    batch: int
    test_batch: int


class Scores(NamedTuple):
    """A blob of scores, and its weight in the loss; the main head is the last."""

    scores: str
    loss: LayerParameter | None


class Base:
    """The layers of a net, of a train_val or a deploy prototxt, without its data, losses and Softmax.

    `input` is the name of its first input, `shape` its shape without the batch, () where the file does not say.
    `transform` is that of its data layer. Raise ScaffeError where it has no layer of scores.
    """

    def __init__(self, net: NetParameter, path: str):
        self.param, self.path = net, path
        kept = filter_layers(net, NetState(phase="TRAIN"))
        data = [layer for layer in kept.layer if not layer.bottom and layer.top and layer.type != "Parameter"]
        if not data:
            raise ScaffeError(f"{path}: there is no data or Input layer, so it can't be fine-tuned")
        self.input = data[0].top[0]
        self.shape = tuple(data[0].input_param.shape[0].dim[1:]) if data[0].input_param.shape else ()
        self.transform = data[0].transform_param
        names = {top for layer in data for top in layer.top}
        self.heads = self._heads(kept.layer, names)
        self.scoring = [self._scoring(kept.layer, head.scores) for head in self.heads]

    def _heads(self, layers: Sequence[LayerParameter], data: set[str]) -> list[Scores]:
        """Return the scores of all losses, or of the last Softmax or blob where there is no loss."""
        losses = [layer for layer in layers if layer.type == LOSS]
        if losses:
            return [Scores(layer.bottom[0], layer) for layer in losses]
        other = next((layer for layer in layers if layer.type.endswith("Loss")), None)
        if other is not None:
            raise ScaffeError(f"{self.path}: its loss, layer '{other.name}', is no {LOSS}, so it doesn't classify")
        last = [layer for layer in layers if layer.top and layer.type not in MEASURES and layer.bottom]
        if not last:
            raise ScaffeError(f"{self.path}: there are no layers behind its data")
        return [Scores(last[-1].bottom[0] if last[-1].type == "Softmax" else last[-1].top[0], None)]

    def _scoring(self, layers: Sequence[LayerParameter], scores: str) -> str:
        """Return the name of the last layer before scores whose outputs are counted by num_output."""
        wanted = {scores}
        for layer in reversed(layers):
            if wanted & set(layer.top):
                if layer.type in SCORING:
                    return layer.name
                wanted |= set(layer.bottom)
        raise ScaffeError(f"{self.path}: no InnerProduct or Convolution leads to '{scores}', so it has no classes")

    def layers(self, classes: int, is_new: bool) -> list[LayerParameter]:
        """Return the layers between data and losses, with so many classes, and a new name and rate if `is_new`."""
        found = []
        for layer in self.param.layer:
            if _is_body(layer):
                copy = LayerParameter()
                copy.CopyFrom(layer)
                _fill(copy)
                if layer.name in self.scoring:
                    _renew(copy, classes, is_new)
                found.append(copy)
        return found


def _is_body(layer: LayerParameter) -> bool:
    is_data = not layer.bottom and layer.type not in ("Parameter", "DummyData")
    ends = layer.type.endswith("Loss") or layer.type in MEASURES
    return not (is_data or ends)


def _fill(layer: LayerParameter) -> None:
    """Give weights that have no filler, such as those of a deploy prototxt, one."""
    for param in (layer.convolution_param, layer.inner_product_param):
        if param.num_output and not param.HasField("weight_filler"):
            param.weight_filler.type = "xavier"


def _renew(layer: LayerParameter, classes: int, is_new: bool) -> None:
    param = layer.inner_product_param if layer.type == "InnerProduct" else layer.convolution_param
    param.num_output = classes
    for spec in layer.param:
        spec.ClearField("name")  # weights shared with another layer would have its size
    if is_new:
        layer.name += SUFFIX
        biased = param.bias_term
        while len(layer.param) < 1 + biased:
            layer.param.add(lr_mult=1 + len(layer.param), decay_mult=1 - len(layer.param))
        for spec in layer.param:
            spec.lr_mult = RATE * (spec.lr_mult or 1)


def train_val(base: Base, source: PictureSource, classes: int, is_new: bool, name: str) -> NetParameter:
    """Return the net to train and test."""
    net = NetParameter(name=name)
    for phase in ("TRAIN", "TEST"):
        net.layer.append(_data(base, source, phase))
    softmax = _last_softmax(base)
    net.layer.extend(layer for layer in base.layers(classes, is_new) if layer.name != softmax)
    for number, head in enumerate(base.heads):
        net.layer.append(_loss(head, "loss" if head is base.heads[-1] else f"loss{number + 1}"))
    accuracy = net.layer.add(name="accuracy", type="Accuracy", bottom=[base.heads[-1].scores, LABEL], top=["accuracy"])
    accuracy.include.add(phase="TEST")
    return net


def _last_softmax(base: Base) -> str:
    """Return the name of the Softmax of a deploy net's scores, "" where there is none."""
    found = [one.name for one in base.param.layer if one.type == "Softmax" and one.bottom[0] == base.heads[-1].scores]
    return found[-1] if found else ""


def _data(base: Base, source: PictureSource, phase: str) -> LayerParameter:
    layer = LayerParameter(name="data", type="ImageData", top=[base.input, LABEL])
    layer.include.add(phase=phase)
    layer.transform_param.CopyFrom(source.transform)
    is_training = phase == "TRAIN"
    if is_training and source.mirror:
        layer.transform_param.mirror = True
    param = layer.image_data_param
    param.source = source.train_list if is_training else source.test_list
    param.root_folder = source.root
    param.batch_size = source.batch if is_training else source.test_batch
    param.new_height, param.new_width = source.resize
    param.is_color, param.shuffle = not source.grey, is_training
    return layer


def _loss(head: Scores, name: str) -> LayerParameter:
    layer = LayerParameter(name=name, type=LOSS, bottom=[head.scores, LABEL], top=[name])
    if head.loss is not None:
        layer.loss_weight.extend(head.loss.loss_weight)
        if head.loss.softmax_param.HasField("axis"):
            layer.softmax_param.axis = head.loss.softmax_param.axis
    return layer


def deploy(base: Base, shape: Sequence[int], classes: int, is_new: bool, name: str) -> NetParameter:
    """Return the net that classifies pictures of a shape (C x H x W)."""
    net = NetParameter(name=name)
    net.layer.add(name=base.input, type="Input", top=[base.input]).input_param.shape.add(dim=[1, *shape])
    body = NetParameter(layer=base.layers(classes, is_new))
    scores, softmax = base.heads[-1].scores, _last_softmax(base)
    tested = filter_layers(body, NetState(phase="TEST")).layer
    net.layer.extend(_leading_to(scores, [one for one in tested if one.name != softmax]))
    net.layer.add(name=PROB, type="Softmax", bottom=[scores], top=[PROB])
    return net


def _leading_to(scores: str, layers: Iterable[LayerParameter]) -> list[LayerParameter]:
    """Return the layers that the scores are computed by, in order."""
    wanted, found = {scores}, []
    for layer in reversed(list(layers)):
        if wanted & set(layer.top):
            wanted |= set(layer.bottom)
            found.append(layer)
    return found[::-1]
