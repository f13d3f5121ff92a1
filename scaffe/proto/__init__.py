"""Caffe's protobuf messages, and the files that hold them."""

from readers.datum_pb2 import BlobProto, BlobProtoVector, BlobShape, Datum
from scaffe.proto.caffe_pb2 import (
    ConvolutionParameter,
    DataParameter,
    FillerParameter,
    LayerParameter,
    NetParameter,
    NetState,
    NetStateRule,
    ParamSpec,
    Phase,
    PoolingParameter,
    ReaderPosition,
    SolverParameter,
    SolverState,
    V0LayerParameter,
    V1LayerParameter,
)

__all__ = [
    "BlobProto",
    "BlobProtoVector",
    "BlobShape",
    "ConvolutionParameter",
    "DataParameter",
    "Datum",
    "FillerParameter",
    "LayerParameter",
    "NetParameter",
    "NetState",
    "NetStateRule",
    "ParamSpec",
    "Phase",
    "PoolingParameter",
    "ReaderPosition",
    "SolverParameter",
    "SolverState",
    "V0LayerParameter",
    "V1LayerParameter",
]
