"""Train Caffe nets over MPI: S-Caffe's co-design in Python, with pycaffe's names.

import scaffe
solver = scaffe.get_solver("solver.prototxt")
solver.step(100)
solver.net.blobs["ip2"].data

net = scaffe.Net("deploy.prototxt", "weights.caffemodel", scaffe.TEST)
net.forward(data=batch)
"""

__version__ = "0.1.0"

from scaffe import io
from scaffe.blob import Blob
from scaffe.classifier import Classifier
from scaffe.context import TEST, TRAIN
from scaffe.errors import ScaffeError
from scaffe.layers.layer import Layer
from scaffe.net import Net
from scaffe.netspec import NetSpec, to_proto
from scaffe.solver import Solver, get_solver

__all__ = [
    "TEST",
    "TRAIN",
    "Blob",
    "Classifier",
    "Layer",
    "Net",
    "NetSpec",
    "ScaffeError",
    "Solver",
    "get_solver",
    "io",
    "to_proto",
]
