"""Upgrade of V1 layers, those of 2014, to present ones: `layers { type: DATA }` to `layer { type: "Data" }`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scaffe.errors import PrototxtError
from scaffe.proto import LayerParameter, NetParameter, V1LayerParameter
from scaffe.proto.upgrade_v0 import put

_TYPES = {
    "NONE": "",
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss",
    "CONVOLUTION": "Convolution",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "ELTWISE": "Eltwise",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
    "MVN": "MVN",
    "POOLING": "Pooling",
    "POWER": "Power",
    "RELU": "ReLU",
    "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "TANH": "TanH",
    "THRESHOLD": "Threshold",
    "WINDOW_DATA": "WindowData",
}
_SPECS = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}
_DATA = {"Data": "data_param", "ImageData": "image_data_param", "WindowData": "window_data_param"}
_TRANSFORM = ("scale", "mean_file", "crop_size", "mirror")


def is_v1(net: NetParameter) -> bool:
    """Return whether a net has V1 layers."""
    return bool(net.layers)


def upgrade_v1(net: NetParameter) -> None:
    """Convert V1 layers to present ones, in place. Raise PrototxtError for a net that has both."""
    if net.layer:
        raise PrototxtError(
            f"layer '{net.layer[0].name}' is written 'layer {{', layer '{net.layers[0].name}' in the old form "
            "'layers {'; write all of them as 'layer {'"
        )
    for old in net.layers:
        _upgrade(old, net.layer.add())
    net.ClearField("layers")


def _upgrade(old: V1LayerParameter, new: LayerParameter) -> None:
    for descriptor, value in old.ListFields():
        if descriptor.name == "type":
            new.type = _TYPES[V1LayerParameter.LayerType.Name(value)]
        elif descriptor.name in _SPECS:
            _spread(value, new, _SPECS[descriptor.name])
        else:
            put(new, descriptor.name, value)
    for field in old_transform(new):
        message = getattr(new, _DATA[new.type])
        put(new.transform_param, field, getattr(message, field))
        message.ClearField(field)


def _spread(values: Iterable[Any], new: LayerParameter, field: str) -> None:
    """Set `field` of the layer's param messages, one value each; add messages as needed."""
    for i, value in enumerate(values):
        if i == len(new.param):
            new.param.add()
        put(new.param[i], field, value)


def old_transform(layer: LayerParameter) -> list[str]:
    """Return the fields of a data layer's own message that have moved to transform_param."""
    message = getattr(layer, _DATA.get(layer.type, ""), None)
    return [field for field in _TRANSFORM if message and message.HasField(field)]
