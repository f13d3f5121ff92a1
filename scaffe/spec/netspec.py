"""NetSpec: nets written in Python, with pycaffe's names; pycaffe's caffe.net_spec.

import scaffe
from scaffe import layers as L
from scaffe.spec import params as P

n = scaffe.NetSpec()
n.data, n.label = L.Data(ntop=2, source="train_lmdb", backend=P.Data.LMDB, batch_size=64)
n.conv1 = L.Convolution(n.data, num_output=20, kernel_size=5, weight_filler=dict(type="xavier"))
n.pool1 = L.Pooling(n.conv1, pool=P.Pooling.MAX, kernel_size=2, stride=2)
n.score = L.InnerProduct(n.pool1, num_output=10)
n.relu = L.ReLU(n.score, in_place=True)
n.loss = L.SoftmaxWithLoss(n.relu, n.label)
net = n.to_proto()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from scaffe.errors import NetError, TopError
from scaffe.near import near
from scaffe.proto import LayerParameter, NetParameter
from scaffe.spec import params as constants


@dataclass(frozen=True, eq=False)
class Top:
    """Top `index` of a function, which can be assigned to a NetSpec or be the bottom of another layer."""

    function: Function
    index: int

    @property
    def fn(self) -> Function:
        """The function, by pycaffe's name."""
        return self.function

    @property
    def n(self) -> int:
        """The index, by pycaffe's name."""
        return self.index

    def to_proto(self) -> NetParameter:
        """Return the net that computes this top."""
        return to_proto(self)


class Function:
    """A layer with its type, bottoms, tops and fields.

    The fields are:

    - `ntop`, the number of tops, 1 by default;
    - `in_place`, which makes the tops the bottoms;
    - those of the layer type's own message, such as `num_output`;
    - those of every layer, such as `loss_weight`.

    `fields`, also called `params`, has all but `ntop` and `in_place`. A program may change them before `to_proto`.
    Raise TopError for a bottom that is no Top, NetError for a wrong field.
    """

    def __init__(self, type_name: str, inputs: Iterable[Top], fields: dict[str, Any]):
        self.type_name, self.inputs, self.fields = type_name, list(inputs), dict(fields)
        self.params = self.fields
        self.ntop = self.fields.pop("ntop", 1)
        self.in_place = self.fields.pop("in_place", False)
        for i, bottom in enumerate(self.inputs):
            if not isinstance(bottom, Top):
                raise TopError(f"{type_name} input {i} is not a Top (type is {type(bottom)})")
        if self.in_place and self.ntop != len(self.inputs):
            raise NetError(f"{type_name}: in_place with {len(self.inputs)} bottom(s) and {self.ntop} top(s)")
        self.tops = tuple(Top(self, i) for i in range(self.ntop))
        self.layer_parameter()  # here too, so that the traceback of an error shows the line with the field

    def layer_parameter(self) -> LayerParameter:
        """Return the layer without its name, bottoms and tops. Raise NetError for a wrong field."""
        layer = LayerParameter(type=self.type_name)
        own = own_field(self.type_name)
        own_names = _FIELDS[own].message_type.fields_by_name if own else {}
        for name, value in self.fields.items():
            if own and name in own_names:
                _assign(getattr(layer, own), name, value, self.type_name)
            elif name in _FIELDS:
                _assign(layer, name, value, self.type_name)
            else:
                known = f"{own}: {' '.join(own_names)}; of every layer: {_common()}" if own else _common()
                text = near(name, [*own_names, *_FIELDS]) or f"; known fields: {known}"
                raise NetError(f"{self.type_name}: unknown field '{name}'{text}")
        return layer

    def result(self) -> Any:
        """Return the result of a layer's call: its top, a tuple of several tops, or without tops the function."""
        return self if self.ntop == 0 else self.tops[0] if self.ntop == 1 else self.tops

    def to_proto(self) -> NetParameter:
        """Return the net that computes this layer."""
        return to_proto(self)


def layer_function(type_name: str) -> Callable[..., Any]:
    """Return the function that adds a layer of a type to a net, given its bottoms and fields."""

    def layer(*bottoms: Top, **fields: Any) -> Any:
        return Function(type_name, bottoms, fields).result()

    layer.__name__ = type_name
    return layer


class Layers:
    """The functions of all layer types, also of types that scaffe does not know; `scaffe.layers` has the known ones."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"no layer type is called '{name}'")
        return layer_function(name)


class Parameters:
    """The constants of layers' messages, as in `scaffe.spec.params`: Parameters().Pooling.MAX."""

    def __getattr__(self, name: str) -> Any:
        return getattr(constants, name)


layers, params = Layers(), Parameters()


# Layer types whose fields are in another type's message; others have their own, as Pooling has PoolingParameter.
_SHARED = {
    "Deconvolution": "convolution_param",
    "Im2col": "convolution_param",
    "LSTM": "recurrent_param",
    "RNN": "recurrent_param",
    "SoftmaxWithLoss": "softmax_param",
}
_FIELDS: dict[str, Any] = dict(LayerParameter.DESCRIPTOR.fields_by_name)


def param_name_dict() -> dict[str, str]:
    """Return the field of each message of LayerParameter, without `_param`, by the message's name: Pooling: pooling."""
    return {
        field.message_type.name.removesuffix("Parameter"): name.removesuffix("_param")
        for name, field in _FIELDS.items()
        if name.endswith("_param")
    }


_OWN = {
    type_name: f"{name}_param" for type_name, name in param_name_dict().items() if name not in ("transform", "loss")
}


def own_field(type_name: str) -> str | None:
    """Return the field of LayerParameter with the layer type's own message, None if it has none."""
    return _SHARED.get(type_name) or _OWN.get(type_name)


def assign_proto(proto: Message, name: str, val: Any) -> None:
    """Set a message's field to a number, string, dict, or a list of these; a repeated field also accepts one value.

    Raise NetError for an unknown field or a value of a wrong type.
    """
    _assign(proto, name, val, proto.DESCRIPTOR.name)


def _common() -> str:
    fields = (name for name in _FIELDS if not name.endswith("_param"))
    return " ".join((*fields, "transform_param", "loss_param"))


def _assign(message: Message, name: str, value: Any, where: str) -> None:
    """Set a field to a number, string, dict, or a list of these; a repeated field also accepts a single value.

    Raise NetError, which names `where`, for an unknown field or a value of a wrong type.
    """
    field: Any = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        known = near(name, message.DESCRIPTOR.fields_by_name, "known fields")
        raise NetError(f"{where}: {message.DESCRIPTOR.name} has no field '{name}'{known}")
    where = f"{where}, {name}"
    values = getattr(message, name)
    if not hasattr(values, "extend"):
        _set_one(message, field, value, where)
        return
    for one in value if isinstance(value, (list, tuple)) else [value]:
        _add_one(values, field, one, where)


def _set_one(message: Message, field: Any, value: Any, where: str) -> None:
    if field.message_type:
        submessage = getattr(message, field.name)
        submessage.SetInParent()
        _fill(submessage, value, where)
        return
    try:
        setattr(message, field.name, _scalar(field, value))
    except (TypeError, ValueError) as error:
        raise _refused(field, value, where) from error


def _add_one(values: Any, field: Any, value: Any, where: str) -> None:
    if field.message_type:
        _fill(values.add(), value, where)
        return
    try:
        values.append(_scalar(field, value))
    except (TypeError, ValueError) as error:
        raise _refused(field, value, where) from error


def _fill(message: Message, value: Any, where: str) -> None:
    """Set a message from a dict, or from another message of its type."""
    if isinstance(value, type(message)):
        message.CopyFrom(value)
    elif isinstance(value, dict):
        for name, part in value.items():
            _assign(message, name, part, where)
    else:
        raise NetError(f"{where}: expected dict({message.DESCRIPTOR.fields[0].name}=..., ...), got {value!r}")


def _scalar(field: Any, value: Any) -> Any:
    """Return `value` for protobuf: an enum constant's name becomes its number."""
    if field.enum_type and isinstance(value, str) and value in field.enum_type.values_by_name:
        return field.enum_type.values_by_name[value].number
    return value


def _refused(field: Any, value: Any, where: str) -> NetError:
    kinds = {field.CPPTYPE_BOOL: "True or False", field.CPPTYPE_STRING: "text", field.CPPTYPE_FLOAT: "a number"}
    names = ", ".join(field.enum_type.values_by_name) if field.enum_type else ""
    kind = f"one of {names}" if names else kinds.get(field.cpp_type, "a whole number in its range")
    return NetError(f"{where}: expected {kind}, got {value!r}")


class NetSpec:
    """Collect named tops, as attributes or items, and convert them to a net.

    A layer has the name of its first top, or its field `name`. A top without a name is called by its layer's type and
    a number. Layers are in the order in which their tops were first named, each after the layers that it depends on.
    """

    tops: dict[str, Top | Function]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        tops = vars(self).get("tops", {})  # absent while Python copies the object
        if name not in tops:
            raise AttributeError(f"this NetSpec has no top '{name}'; tops: {' '.join(tops) or 'none'}")
        return tops[name]

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __setitem__(self, name: str, value: Top | Function) -> None:
        if not isinstance(value, (Top, Function)):
            raise TopError(f"'{name}' must be the top of a layer, got {value!r}; several tops go to several names")
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tops

    def __iter__(self) -> Iterator[str]:
        return iter(self.tops)

    def keys(self) -> list[str]:
        """Return the names of the tops."""
        return list(self.tops)

    def vals(self) -> list[Top | Function]:
        """Return the tops, and the functions without tops."""
        return list(self.tops.values())

    def update(self, others: dict[str, Top | Function]) -> None:
        """Add the names and tops of a dict."""
        for name, value in others.items():
            self[name] = value

    def to_proto(self) -> NetParameter:
        """Return the net of all tops."""
        return _Writer({value: name for name, value in self.tops.items()}).net(self.tops.values())


def to_proto(*tops: Top | Function) -> NetParameter:
    """Return the net that computes `tops`, with automatic names."""
    return _Writer({}).net(tops)


class _Writer:
    """Convert functions to layers, each once, after the layers that it depends on."""

    def __init__(self, names: dict[Top | Function, str]):
        self.names = names
        self.layers: dict[Function, LayerParameter] = {}
        self.numbers: Counter[str] = Counter()  # of automatic names, by type

    def net(self, tops: Iterable[Top | Function]) -> NetParameter:
        """Return the net that computes `tops`."""
        for top in tops:
            self._write(top.function if isinstance(top, Top) else top)
        return NetParameter(layer=self.layers.values())

    def _write(self, wanted: Function) -> None:
        pending = [wanted]  # a stack, since nets are deeper than Python's recursion limit
        while pending:
            function = pending[-1]
            missing = [top.function for top in function.inputs if top.function not in self.layers]
            if function not in self.layers and not missing:
                self.layers[function] = self._layer(function)
            pending.extend(missing[:1])
            if not missing:
                pending.pop()

    def _layer(self, function: Function) -> LayerParameter:
        bottoms = [self.layers[top.function].top[top.index] for top in function.inputs]
        tops = bottoms if function.in_place else [self._name(top, function) for top in function.tops]
        layer = LayerParameter(type=function.type_name, bottom=bottoms, top=tops)
        layer.name = self._name(function.tops[0] if function.tops else function, function)
        layer.MergeFrom(function.layer_parameter())
        return layer

    def _name(self, value: Top | Function, function: Function) -> str:
        if value not in self.names:
            self.numbers[function.type_name] += 1
            self.names[value] = f"{function.type_name}{self.numbers[function.type_name]}"
        return self.names[value]
