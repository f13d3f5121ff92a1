"""Plans over ranks: the root times, and all compute its way."""

import pytest
from google.protobuf import text_format
from mpi4py import MPI

import scaffe
from scaffe.compute import Compute
from scaffe.engines.onednn import library
from scaffe.errors import OnednnError
from scaffe.parallel.run import Run
from scaffe.proto import SolverParameter

pytestmark = pytest.mark.mpi

SOLVER = """
base_lr: 0.01 lr_policy: "fixed" random_seed: 1 snapshot_after_train: false
net_param {
  layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 8 dim: 9 dim: 9 } } }
  layer { name: "a" type: "Convolution" bottom: "x" top: "a" convolution_param { num_output: 8 kernel_size: 3 } }
  layer { name: "b" type: "Convolution" bottom: "a" top: "b" convolution_param { num_output: 20 kernel_size: 5 } }
  layer { name: "loss" type: "Reduction" bottom: "b" top: "loss" loss_weight: 1 reduction_param { operation: SUMSQ } }
}
"""


def test_all_ranks_compute_as_the_root_found_best():
    try:
        library.load()
    except OnednnError as error:
        pytest.skip(str(error))
    comm = MPI.COMM_WORLD
    param = text_format.Parse(SOLVER, SolverParameter())
    solver = scaffe.Solver(param, run=Run(scaling="weak"), compute=Compute(engine="onednn", plan="timed"))
    solver.step(1)
    assert len(solver.job.choices.taken) == 2
    assert all(taken == solver.job.choices.taken for taken in comm.allgather(solver.job.choices.taken))
