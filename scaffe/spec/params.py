"""The constants of the layers' parameter messages, as in pycaffe: `from scaffe import params as P`; P.Pooling.MAX."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UnknownNameError
from scaffe.near import near
from scaffe.proto import caffe_pb2


def __getattr__(name: str) -> Any:
    """Return the message class with a layer type's constants: PoolingParameter for Pooling."""
    if name not in __dir__():
        raise UnknownNameError(f"no parameters are called '{name}'{near(name, __dir__(), 'known names')}")
    return getattr(caffe_pb2, f"{name}Parameter")


def __dir__() -> list[str]:
    messages = caffe_pb2.DESCRIPTOR.message_types_by_name
    return [name.removesuffix("Parameter") for name in messages if name.endswith("Parameter")]
