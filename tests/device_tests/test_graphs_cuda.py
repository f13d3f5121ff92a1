"""CUDA graphs of layer groups on a real GPU train as layers computed one by one, and neither wait nor allocate."""

import numpy as np
import pytest
from a_gpu_of_ours import GPU, MISSING, hold, needs_gpu
from mpi4py import MPI

import scaffe
from scaffe.compute import Compute
from scaffe.monitor.watching import Watching
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="each rank is alone here: two tell as much as three"),
]

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 8 dim: 3 dim: SIZE dim: SIZE } shape { dim: 8 }
    data_filler { type: "constant" value: 0.5 } data_filler { type: "constant" value: 3 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 16 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv1" top: "conv1" }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "norm" type: "LRN" bottom: "pool1" top: "norm" }
layer { name: "left" type: "Convolution" bottom: "norm" top: "left"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "right" type: "Convolution" bottom: "norm" top: "right"
  convolution_param { num_output: 8 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "both" type: "Concat" bottom: "left" bottom: "right" top: "both" }
layer { name: "drop" type: "Dropout" bottom: "both" top: "both" }
layer { name: "ip" type: "InnerProduct" bottom: "both" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def make(tmp_path):
    world, made = World(MPI.COMM_SELF.Dup()), []
    (tmp_path / "net.prototxt").write_text(NET.replace("SIZE", "10" if MISSING else "24"))

    def make(graphs):
        world.take_gpu(GPU)
        param = SolverParameter(
            net=str(tmp_path / "net.prototxt"), base_lr=0.01, momentum=0.9, lr_policy="fixed", max_iter=100,
            random_seed=3, clip_gradients=5, weight_decay=0.001, snapshot_prefix=str(tmp_path / "snap"),
        )  # fmt: skip
        made.append(
            scaffe.Solver(param, world=world, compute=Compute(graphs=graphs), watching=Watching(stall_seconds=0))
        )
        world.take_gpu(None)
        return made[-1]

    yield make
    for solver in made:
        solver.close()


def test_what_is_repeated_trains_as_what_is_computed(make):
    pair = [make(graphs) for graphs in ("on", "off")]
    for solver in pair:
        solver.step(12)
    assert len(pair[0].net.engine.graphs._recordings) >= 2
    one, other = (solver.net.packed.host_data() for solver in pair)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())
    np.testing.assert_allclose(*(list(solver.parts.losses.last) for solver in pair), rtol=1e-5)


@needs_gpu
def test_the_steady_state_takes_no_more_memory(make):
    for graphs in ("on", "off"):
        solver, pool = make(graphs), GPU.xp.get_default_memory_pool()
        solver.step(8)
        held = pool.total_bytes()
        solver.step(8)
        assert pool.total_bytes() == held


@pytest.mark.parametrize("graphs", ["on", "off"])
def test_an_iteration_is_put_on_the_stream_while_the_gpu_is_still_busy_with_something_else(make, graphs):
    solver, cuda = make(graphs), GPU.xp.cuda
    solver.step(8)
    flag = np.frombuffer(cuda.alloc_pinned_memory(4), np.int32, 1)
    flag[0] = 0
    hold(flag)
    try:
        solver._iterate(ends=False)  # would never return if it waited: the GPU waits for us
        assert not GPU.stream.done
    finally:
        flag[0] = 1  # or the GPU would wait for ever, under all tests that follow
    solver.job.iter += 1
    solver.parts.losses.settle()


def test_leaving_another_stream_comes_back_to_the_ranks_own():
    with GPU.xp.cuda.Stream(non_blocking=True):
        pass
    assert GPU.xp.cuda.get_current_stream() == GPU.stream
