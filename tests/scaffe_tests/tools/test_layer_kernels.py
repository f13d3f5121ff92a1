"""What `scaffe time` names besides the times: number formats, layouts, reorders, and the memory of blobs."""

import numpy as np
import pytest
from both_engines import AVX2, build, needs_onednn, uses

from scaffe.devices.kernel_run import REORDER
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory, Onednn, reorder
from scaffe.tools.layer_kernels import blob_bytes, layer_lines, sums, watch

NET = """
layer {
  name: "conv" type: "Convolution" bottom: "x0" top: "conv"
  convolution_param { num_output: 32 kernel_size: 3 weight_filler { type: "xavier" } }
}
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "abs" type: "AbsVal" bottom: "conv" top: "abs" }
"""
SHAPE = (2, 16, 8, 8)


@needs_onednn
def test_a_format_is_named_by_letters():
    engine = Onednn()
    shape = (4, 32, 5, 6)
    plain, last, blocked = engine.plain(shape), engine.channels_last(shape, lib.BF16), engine.blocked(shape)[0]
    assert [desc.format for desc in (plain, last, blocked)] == ["float32", "bf16 acdb", "float32 aBcd16b"]
    assert engine.channels_last((4, 1, 5, 6)).format == "float32"  # the same memory as in C order


@needs_onednn
def test_a_watcher_sees_each_run_of_a_kernel():
    engine, seen = Onednn(), []
    source = Memory(engine, engine.plain((2, 16, 3, 3)), np.ones((2, 16, 3, 3), np.float32))
    target = Memory(engine, engine.blocked((2, 16, 3, 3))[0])
    copy = reorder(source, target)
    copy.run()
    engine.watcher = seen.append
    copy.run()
    engine.gemm(np.ones((4, 5), np.float32), np.ones((5, 6), np.float32), np.empty((4, 6), np.float32))
    engine.watcher = None
    copy.run()
    assert [run.operation for run in seen] == [REORDER, "sgemm"]
    assert seen[0].source == (source.buffer.ctypes.data, "float32")
    assert seen[0].target == (target.buffer.ctypes.data, "float32 aBcd16b")
    assert all(run.seconds > 0 for run in seen)


@needs_onednn
def test_a_layers_reorders_are_those_of_its_blobs():
    net = build(NET, SHAPE)
    conv, relu, absval = watch(net, 2)[1:]
    assert conv.numbers == "float32" and conv.tops == ["conv fused, not computed"]
    forward = [what for what in conv.reorders if what.startswith("forward")]
    assert any(what.startswith("forward, x0 float32 to float32 ") for what in forward)
    assert any(what.startswith("forward, conv[0] float32 to float32 ") for what in forward)
    gradient = any("conv[0] diff float32 " in what and what.endswith(" to float32") for what in conv.reorders)
    assert gradient == uses(AVX2)  # below, it is a product of matrices, in C order
    assert set(conv.seconds) == {"convolution_" + step for step in ("forward", "backward_data", "backward_weights")}
    assert set(relu.seconds) == {"eltwise_backward"}  # the convolution computes it forward
    assert absval.tops[0].startswith("abs float32 ")
    assert net.engine.watcher is None


@needs_onednn
def test_reorders_are_counted_apart():
    kernels = watch(build(NET, SHAPE), 1)
    computing, reordering = sums(kernels)
    assert computing == pytest.approx(sum(t for k in kernels for t in k.seconds.values()))
    assert reordering == pytest.approx(sum(t for k in kernels for t in k.reorders.values()))
    (line, *others) = layer_lines("conv", kernels[1])
    assert line == "      conv\ttype: float32, conv fused, not computed."
    assert len(others) == len(kernels[1].reorders)


def test_numpy_has_no_kernels_to_watch():
    for kernels in watch(build(NET, SHAPE, engine="reference"), 1):
        assert kernels.numbers == "float32" and not kernels.seconds and not kernels.reorders


def test_blobs_memory_is_counted_once():
    """The values of a split's tops lie in its bottom's memory, their gradients in memory of their own."""
    split = 'layer { name: "abs2" type: "AbsVal" bottom: "x0" top: "abs2" }'
    net = build(split + split.replace("abs2", "abs3"), SHAPE, engine="auto")
    net.forward()
    net.backward()
    values, gradients = 3, 5  # x0, abs2, abs3; of the two tops of the split too
    assert blob_bytes(net) == (values + gradients) * 4 * np.prod(SHAPE)
