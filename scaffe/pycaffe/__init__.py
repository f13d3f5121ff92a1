"""pycaffe's names: import scaffe.pycaffe as caffe, or install() and then import caffe."""

from scaffe.classifier import Classifier as Classifier
from scaffe.context import TEST as TEST
from scaffe.context import TRAIN as TRAIN
from scaffe.detector import Detector as Detector
from scaffe.layers.caffe_shim import CaffeLayer
from scaffe.layers.layer import known_types
from scaffe.net import Net as Net
from scaffe.netspec import NetSpec as NetSpec
from scaffe.netspec import to_proto as to_proto
from scaffe.pycaffe.names import MODULES, submodules
from scaffe.pycaffe.names import install as install
from scaffe.training.get_solver import get_solver as get_solver

__version__ = "1.0.0"
Layer = CaffeLayer
globals().update(submodules(MODULES))


def layer_type_list() -> list[str]:
    """Return the types of layers that a net can have, sorted."""
    return known_types()
