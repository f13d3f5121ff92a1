"""Upgrade of V0 layers, those of 2013, to V1: `layers { layer { type: "conv" ... } bottom: ... }`.

In V0 one message has the fields of all layer types; in V1 each type has its own message.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from scaffe.errors import PrototxtError
from scaffe.proto import NetParameter, V0LayerParameter, V1LayerParameter

# The V1 name of each layer type, and the field of the V1 message with its parameters.
_TYPES = {
    "accuracy": "ACCURACY",
    "bnll": "BNLL",
    "concat": "CONCAT",
    "conv": "CONVOLUTION",
    "data": "DATA",
    "dropout": "DROPOUT",
    "euclidean_loss": "EUCLIDEAN_LOSS",
    "flatten": "FLATTEN",
    "hdf5_data": "HDF5_DATA",
    "hdf5_output": "HDF5_OUTPUT",
    "im2col": "IM2COL",
    "images": "IMAGE_DATA",
    "infogain_loss": "INFOGAIN_LOSS",
    "innerproduct": "INNER_PRODUCT",
    "lrn": "LRN",
    "multinomial_logistic_loss": "MULTINOMIAL_LOGISTIC_LOSS",
    "pool": "POOLING",
    "relu": "RELU",
    "sigmoid": "SIGMOID",
    "softmax": "SOFTMAX",
    "softmax_loss": "SOFTMAX_LOSS",
    "split": "SPLIT",
    "tanh": "TANH",
    "window_data": "WINDOW_DATA",
}
_MESSAGES = {
    "concat": "concat_param",
    "conv": "convolution_param",
    "data": "data_param",
    "dropout": "dropout_param",
    "hdf5_data": "hdf5_data_param",
    "images": "image_data_param",
    "infogain_loss": "infogain_loss_param",
    "innerproduct": "inner_product_param",
    "lrn": "lrn_param",
    "pool": "pooling_param",
    "window_data": "window_data_param",
}

# The V1 name of each V0 field, and the layer types that may have it.
_FIELDS = {
    "num_output": ("num_output", "conv innerproduct"),
    "biasterm": ("bias_term", "conv innerproduct"),
    "weight_filler": ("weight_filler", "conv innerproduct"),
    "bias_filler": ("bias_filler", "conv innerproduct"),
    "pad": ("pad", "conv pool"),
    "kernelsize": ("kernel_size", "conv pool"),
    "group": ("group", "conv"),
    "stride": ("stride", "conv pool"),
    "pool": ("pool", "pool"),
    "dropout_ratio": ("dropout_ratio", "dropout"),
    "local_size": ("local_size", "lrn"),
    "alpha": ("alpha", "lrn"),
    "beta": ("beta", "lrn"),
    "k": ("k", "lrn"),
    "source": ("source", "data hdf5_data images window_data infogain_loss"),
    "batchsize": ("batch_size", "data hdf5_data images window_data"),
    "rand_skip": ("rand_skip", "data images"),
    "shuffle_images": ("shuffle", "images"),
    "new_height": ("new_height", "images"),
    "new_width": ("new_width", "images"),
    "concat_dim": ("concat_dim", "concat"),
    "det_fg_threshold": ("fg_threshold", "window_data"),
    "det_bg_threshold": ("bg_threshold", "window_data"),
    "det_fg_fraction": ("fg_fraction", "window_data"),
    "det_context_pad": ("context_pad", "window_data"),
    "det_crop_mode": ("crop_mode", "window_data"),
}
_TRANSFORM = {
    "scale": "scale",
    "meanfile": "mean_file",
    "cropsize": "crop_size",
    "mirror": "mirror",
}  # of any type
_KEPT = ("name", "blobs", "blobs_lr", "weight_decay", "hdf5_output_param")  # the same in V1


def is_v0(net: NetParameter) -> bool:
    """Return whether a net has V0 layers."""
    return any(layer.HasField("layer") for layer in net.layers)


def upgrade_v0(net: NetParameter) -> None:
    """Convert V0 layers to V1, in place. Raise PrototxtError, with the layer, for unknown types and fields."""
    _fold_padding(net)
    for layer in net.layers:
        if layer.HasField("layer"):
            _upgrade(layer)


def _upgrade(v1: V1LayerParameter) -> None:
    v0 = V0LayerParameter()
    v0.CopyFrom(v1.layer)
    v1.ClearField("layer")
    if v0.HasField("type"):
        if v0.type not in _TYPES:
            raise PrototxtError(f"layer '{v0.name}': unknown V0 type '{v0.type}'; known types: {' '.join(_TYPES)}")
        put(v1, "type", V1LayerParameter.LayerType.Value(_TYPES[v0.type]))
    for descriptor, value in v0.ListFields():
        _move(v0, descriptor.name, value, v1)


def _move(v0: V0LayerParameter, field: str, value: Any, v1: V1LayerParameter) -> None:
    """Copy one V0 field to its place in V1."""
    if field == "type":
        return
    if field in _KEPT:
        put(v1, field, value)
    elif field in _TRANSFORM:
        put(v1.transform_param, _TRANSFORM[field], value)
    elif field in _FIELDS and v0.type in _FIELDS[field][1].split():
        put(getattr(v1, _MESSAGES[v0.type]), _FIELDS[field][0], value)
    else:
        raise PrototxtError(f"layer '{v0.name}': a V0 layer of type '{v0.type}' has no field '{field}'; remove it")


def put(message: Message, field: str, value: Any) -> None:
    """Set a field of any kind. A repeated field is extended by a list or by a single value."""
    present = getattr(message, field)
    if hasattr(present, "extend"):
        present.extend(value if hasattr(value, "extend") else [value])
    elif isinstance(present, Message):
        present.CopyFrom(value)
    else:
        setattr(message, field, value)


def _fold_padding(net: NetParameter) -> None:
    """Move the pad of each padding layer to the layer after it, and remove the padding layers."""
    makers: dict[str, V1LayerParameter] = {}
    for layer in net.layers:
        for i, bottom in enumerate(layer.bottom):
            maker = makers.get(bottom)
            if maker is not None and maker.layer.type == "padding":
                _check_padding(maker, layer)
                layer.layer.pad = maker.layer.pad
                layer.bottom[i] = maker.bottom[0]
        makers.update(dict.fromkeys(layer.top, layer))
    for i in reversed(range(len(net.layers))):
        if net.layers[i].layer.type == "padding":
            del net.layers[i]


def _check_padding(padding: V1LayerParameter, user: V1LayerParameter) -> None:
    where = f"padding layer '{padding.layer.name}'"
    if (len(padding.bottom), len(padding.top)) != (1, 1):
        raise PrototxtError(f"{where}: {len(padding.bottom)} bottoms and {len(padding.top)} tops; expected one of each")
    if user.layer.type not in ("conv", "pool") or len(user.bottom) != 1:
        raise PrototxtError(
            f"{where}: feeds layer '{user.layer.name}' of type '{user.layer.type}' with {len(user.bottom)} bottoms; "
            "only a layer of type conv or pool with one bottom can take over its field 'pad'"
        )
