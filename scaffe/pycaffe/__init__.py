"""pycaffe's names, for programs written for it.

import scaffe.pycaffe as caffe

scaffe.pycaffe.install()
import caffe
from caffe.proto import caffe_pb2

python -m scaffe.pycaffe script.py ARGS...
"""

import sys

from scaffe.blob import Blob as Blob
from scaffe.context import TEST as TEST
from scaffe.context import TRAIN as TRAIN
from scaffe.layers import caffe_shim
from scaffe.layers.caffe_shim import BlobVec as BlobVec
from scaffe.layers.layer import known_types
from scaffe.net.net import Net as Net
from scaffe.pictures import io as io
from scaffe.pictures.classifier import Classifier as Classifier
from scaffe.pictures.detector import Detector as Detector
from scaffe.proto import LayerParameter as LayerParameter
from scaffe.pycaffe.logs import init_log as init_log
from scaffe.pycaffe.logs import log as log
from scaffe.pycaffe.modes import set_device as set_device
from scaffe.pycaffe.modes import set_mode_cpu as set_mode_cpu
from scaffe.pycaffe.modes import set_mode_gpu as set_mode_gpu
from scaffe.pycaffe.modes import set_random_seed as set_random_seed
from scaffe.pycaffe.names import MODULES, follow_consent, modules, submodules
from scaffe.pycaffe.names import install as install
from scaffe.pycaffe.nccl import NCCL as NCCL
from scaffe.pycaffe.ranks import has_nccl as has_nccl
from scaffe.pycaffe.ranks import set_multiprocess as set_multiprocess
from scaffe.pycaffe.ranks import set_solver_count as set_solver_count
from scaffe.pycaffe.ranks import set_solver_rank as set_solver_rank
from scaffe.pycaffe.ranks import solver_count as solver_count
from scaffe.pycaffe.ranks import solver_rank as solver_rank
from scaffe.pycaffe.solvers import AdaDeltaSolver as AdaDeltaSolver
from scaffe.pycaffe.solvers import AdaGradSolver as AdaGradSolver
from scaffe.pycaffe.solvers import AdamSolver as AdamSolver
from scaffe.pycaffe.solvers import CaffeSolver as CaffeSolver
from scaffe.pycaffe.solvers import NesterovSolver as NesterovSolver
from scaffe.pycaffe.solvers import RMSPropSolver as RMSPropSolver
from scaffe.pycaffe.solvers import SGDSolver as SGDSolver
from scaffe.pycaffe.solvers import get_solver as get_solver
from scaffe.pycaffe.timer import Timer as Timer
from scaffe.spec.netspec import NetSpec as NetSpec
from scaffe.spec.netspec import to_proto as to_proto

__version__ = "1.0.0"  # of the Caffe whose names these are: programs compare it
Layer = caffe_shim.CaffeLayer
Solver = CaffeSolver
layer_type_list = known_types
globals().update(submodules(MODULES))
sys.modules.update(modules(__name__))  # for `from scaffe.pycaffe.proto import caffe_pb2`
caffe_shim.provide(modules)
follow_consent()
