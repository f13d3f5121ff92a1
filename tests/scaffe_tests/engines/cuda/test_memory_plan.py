"""Where a net's blobs lie on a stand-in for a GPU: what is in use together apart, what is not may share."""

import numpy as np
import pytest
from strict_arrays import StrictGpu

import scaffe
from scaffe import engines
from scaffe.errors import DeviceError, ScaffeError

BRANCHES = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 6 dim: 5 dim: 5 } } }
layer { name: "a" type: "Convolution" bottom: "x" top: "a" convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "ra" type: "Sigmoid" bottom: "a" top: "ra" }
layer { name: "b" type: "Convolution" bottom: "ra" top: "b" convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "rb" type: "ReLU" bottom: "b" top: "b" }
layer { name: "c" type: "Pooling" bottom: "ra" top: "c" pooling_param { kernel_size: 1 } }
layer { name: "d" type: "Convolution" bottom: "c" top: "d" convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "flat" type: "Flatten" bottom: "d" top: "flat" }
layer { name: "back" type: "Reshape" bottom: "flat" top: "back"
  reshape_param { shape { dim: 0 dim: 4 dim: 3 dim: 3 } } }
layer { name: "join" type: "Concat" bottom: "b" bottom: "back" top: "join" }
layer { name: "e" type: "InnerProduct" bottom: "join" top: "e" inner_product_param { num_output: 3 } }
layer { name: "half" type: "Slice" bottom: "join" top: "low" top: "high" }
layer { name: "add" type: "Eltwise" bottom: "low" bottom: "high" top: "add" }
layer { name: "zero" type: "Power" bottom: "add" top: "zero" power_param { scale: 0.5 } }
layer { name: "loss" type: "Reduction" bottom: "zero" top: "loss" reduction_param { operation: SUMSQ } loss_weight: 2 }
layer { name: "loss2" type: "Reduction" bottom: "e" top: "loss2" reduction_param { operation: MEAN } loss_weight: 1 }
"""


def build(path, phase, gpu=None):
    path.write_text(BRANCHES)
    net = scaffe.Net(path, phase, engine=engines.create(gpu=gpu or StrictGpu()))
    rng = np.random.default_rng(0)
    net.blobs["x"].data[...] = rng.standard_normal(net.blobs["x"].shape)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = rng.standard_normal(blob.shape)
    return net


def pass_over(net, backward=True):
    """Run every layer once, as training and tests do."""
    net.clear_param_diffs()
    for i in range(len(net.layers)):
        net.forward_layer(i)
    for i in reversed(range(len(net.layers) if backward else 0)):
        net.backward_layer(i)
    return net


def gradients(net):
    return [blob.diff.copy() for blobs in net.params.values() for blob in blobs]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.prototxt"


def test_gradients_that_take_turns_give_the_numbers_of_those_that_are_kept(path):
    kept, shared = (build(path, scaffe.TRAIN) for _ in range(2))
    shared.keep_diffs = False
    for _ in range(2):
        pass_over(kept)
        pass_over(shared)
    for one, other in zip(gradients(kept), gradients(shared), strict=True):
        np.testing.assert_array_equal(one, other)
    for name, blob in kept.blobs.items():
        np.testing.assert_array_equal(blob.data, shared.blobs[name].data)
    assert shared.engine.memory.nbytes < kept.engine.memory.nbytes


def test_values_that_take_turns_in_tests_give_the_outputs_of_those_that_are_kept(path):
    kept, shared = (build(path, scaffe.TEST) for _ in range(2))
    shared.keep_data = False
    for net in (kept, shared):
        pass_over(net, backward=False)
    assert {*kept.outputs} == {"loss", "loss2"}
    for name in kept.outputs:
        np.testing.assert_array_equal(kept.blobs[name].data, shared.blobs[name].data)
    assert shared.engine.memory.nbytes < kept.engine.memory.nbytes
    with pytest.raises(ScaffeError, match="released after use"):
        shared.blobs["ra"].data  # noqa: B018


def test_a_pass_by_hand_keeps_all_values(path):
    net = build(path, scaffe.TEST)
    net.keep_data = False
    pass_over(net, backward=False)
    net.forward()
    np.testing.assert_array_equal(net.blobs["ra"].data, pass_over(build(path, scaffe.TEST), False).blobs["ra"].data)


def test_all_that_layers_compute_lies_in_one_allocation(path):
    net = pass_over(build(path, scaffe.TRAIN))
    lots = net.engine.memory.lots()
    bases = {id(_base(lot.values.array.values)) for lot in lots}
    assert len(bases) == 1 and len(lots) > 20
    assert {id(lot.values) for lot in lots} == {id(v) for v in _computed(net)}


def _base(values):
    return values if values.base is None else _base(values.base)


def _computed(net):
    """Return the values that have arrays, of all blobs that layers give and that are not another's in another shape."""
    views = {id(top) for i, layer in enumerate(net.layers) if layer.views for top in net.tops[i]}
    blobs = [blob for name, blob in net.blobs.items() if name != "x"]
    losses = {id(net.tops[i][j]) for i, j, _ in net.losses}
    data = [blob.values for blob in blobs if id(blob) not in views]
    return data + [blob.diff_values for blob in blobs if id(blob) not in losses and blob.diff_values.array is not None]


def test_nothing_is_allocated_once_a_net_has_run(path, monkeypatch):
    net = build(path, scaffe.TRAIN)
    net.keep_diffs = False
    for _ in range(2):
        pass_over(net)
    made = []
    for name in ("zeros", "empty", "empty_like", "zeros_like", "ones"):
        function = getattr(net.context.xp, name)
        monkeypatch.setattr(net.context.xp, name, lambda *a, f=function, **k: made.append(a) or f(*a, **k))
    places = [lot.values.array.values.ctypes.data for lot in net.engine.memory.lots()]
    pass_over(net)
    assert made == [] and places == [lot.values.array.values.ctypes.data for lot in net.engine.memory.lots()]


def test_another_batch_is_placed_anew(path):
    net = build(path, scaffe.TRAIN)
    pass_over(net)
    small = net.engine.memory.nbytes
    net.blobs["x"].reshape(9, 6, 5, 5)
    net.reshape()
    pass_over(net)
    assert net.engine.memory.nbytes > 2 * small and net.blobs["e"].data.shape == (9, 3)


FREE = 15000


class SmallGpu(StrictGpu):
    """A stand-in with little memory."""

    free = FREE


class OutOfMemoryError(MemoryError):
    """cupy.cuda.memory.OutOfMemoryError."""


def test_a_net_that_does_not_fit_names_its_fullest_layer_and_the_batch_that_would(path, monkeypatch):
    net = build(path, scaffe.TRAIN, SmallGpu())
    net.context.local_rows = 4  # as a data layer would say

    def refuse(count, dtype):
        raise OutOfMemoryError(f"Out of memory allocating {count:,} bytes (allocated so far: 0 bytes).")

    monkeypatch.setattr(net.context.xp, "zeros", refuse)
    with pytest.raises(DeviceError) as caught:
        pass_over(net)
    wanted = net.engine.memory.needs(4, 0, net.engine.scratch_bytes)[0]
    start = "layer 'a' (Convolution), [(4, 6, 5, 5)] -> [(4, 8, 3, 3)]: out of memory of GPU 0: "
    assert str(caught.value).startswith(start)
    batch = FREE // wanted
    assert 0 < batch < 4
    said = f"; at {wanted} bytes a sample, a batch of about {batch} a rank would fit instead of 4"
    assert str(caught.value).endswith(f" bytes wanted, {FREE} are free{said}")


def test_layers_have_their_scratch_memory_in_turn(path):
    net = pass_over(build(path, scaffe.TRAIN))
    engine, largest = net.engine, max(layer.blobs[0].count for layer in net.layers if layer.blobs)
    columns = {layer.name: layer.scratch("columns", (largest,), np.float32) for layer in net.layers if layer.blobs}
    assert len({array.values.ctypes.data for array in columns.values()}) == 1
    before = engine.scratch_version
    net.layer_dict["a"].scratch("columns", (10**6,), np.float32)
    assert engine.scratch_version == before + 1 and engine.scratch_bytes >= 4 * 10**6
