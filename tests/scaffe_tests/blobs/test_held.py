"""Arrays that users keep: after each public call they show what a twin, into which nobody looked before, has there."""

import sys
import threading

import nets
import numpy as np
import pytest
from both_engines import needs_onednn
from google.protobuf import text_format

import scaffe
from scaffe.blob import Blob
from scaffe.compute import Compute
from scaffe.errors import NetError, ScaffeError, ShapeError
from scaffe.proto import NetParameter
from scaffe.training.solver import Solver

ENGINES = ["reference", pytest.param("onednn", marks=needs_onednn)]

RESIDUAL = """force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 16 dim: 6 dim: 6 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "bn" type: "BatchNorm" bottom: "c" top: "bn" }
layer { name: "sc" type: "Scale" bottom: "bn" top: "sc" scale_param { bias_term: true } }
layer { name: "re" type: "ReLU" bottom: "sc" top: "re" }
layer { name: "d" type: "Convolution" bottom: "re" top: "d" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "d" bottom: "re" top: "sum" }
layer { name: "re2" type: "ReLU" bottom: "sum" top: "sum" }
layer { name: "drop" type: "Dropout" bottom: "sum" top: "sum" }
layer { name: "pool" type: "Pooling" bottom: "sum" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "flat" type: "Flatten" bottom: "pool" top: "flat" }
layer { name: "ip" type: "InnerProduct" bottom: "flat" top: "ip" inner_product_param { num_output: 40 } }
layer { name: "sig" type: "Sigmoid" bottom: "ip" top: "sig" }
layer { name: "prob" type: "Softmax" bottom: "sig" top: "prob" }
"""


SMALL = """
layer {
  name: "x" type: "Input" top: "x" top: "y"
  input_param { shape { dim: 2 dim: 1 dim: 12 dim: 12 } shape { dim: 2 } }
}
layer { name: "conv1" type: "Convolution" bottom: "x" top: "conv1" convolution_param { num_output: 20 kernel_size: 3 } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" }
layer { name: "c2" type: "Convolution" bottom: "norm1" top: "c2" convolution_param { num_output: 32 kernel_size: 3 } }
layer { name: "ip1" type: "InnerProduct" bottom: "c2" top: "ip1" inner_product_param { num_output: 50 } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "y" top: "loss" }
"""


def small():
    return text_format.Parse(SMALL, NetParameter())


def residual():
    return text_format.Parse(RESIDUAL, NetParameter())


def made(model, engine, phase=scaffe.TRAIN):
    net = scaffe.Net(model(), phase, compute=Compute(engine, threads=1))
    rng = np.random.default_rng(0)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = rng.standard_normal(blob.shape) * 0.1
    fill(net, 0)
    return net


def fill(net, seed):
    net.blobs[net.inputs[0]].data[...] = np.random.default_rng(seed).standard_normal(net.blobs[net.inputs[0]].shape)


def arrays(net):
    """Return all that a net has, by name: arrays as the user asks for them."""
    found = {f"{name} {part}": getattr(blob, part) for name, blob in net.blobs.items() for part in ("data", "diff")}
    for name, blobs in net.params.items():
        found |= {f"{name}[{i}] {part}": getattr(b, part) for i, b in enumerate(blobs) for part in ("data", "diff")}
    return found


class Kept:
    """Views of all of a net's arrays, the arrays themselves dropped, and their values in a twin net's arrays."""

    def __init__(self, net, twin):
        self.net, self.twin = net, twin
        self.views = {name: array.reshape(-1)[: array.size] for name, array in arrays(net).items()}

    def compare(self):
        for name, array in arrays(self.twin).items():
            np.testing.assert_allclose(self.views[name], array.reshape(-1), rtol=1e-5, atol=1e-6, err_msg=name)

    def both(self, act):
        for net in (self.net, self.twin):
            act(net)
        self.compare()


@pytest.fixture(params=[small, residual], ids=lambda model: model.__name__)
def model(request):
    return request.param


@pytest.fixture(params=ENGINES)
def kept(request, model):
    return Kept(made(model, request.param), made(model, request.param))


def passes(kept):
    yield lambda net: net.clear_param_diffs()
    yield lambda net: net.forward()
    yield lambda net: net.backward()
    yield lambda net: fill(net, 1)
    yield lambda net: net.forward(end=net.layers[5].name)
    yield lambda net: net.forward(start=net.layers[6].name)
    yield lambda net: net.backward()
    yield lambda net: net.clear_param_diffs()
    for i in range(1, len(kept.net.layers)):
        yield lambda net, i=i: net.forward_layer(i)
    for i in reversed(range(1, len(kept.net.layers))):
        yield lambda net, i=i: net.backward_layer(i)
    yield lambda net: net.reshape()
    yield lambda net: net.forward()


def test_arrays_show_the_values_after_each_call(kept):
    for act in passes(kept):
        kept.both(act)


def test_gradients_that_are_given_up_in_training_stay_where_a_user_holds_them(kept):
    kept.net.keep_diffs = False
    kept.both(lambda net: (net.forward(), net.backward()))
    kept.both(lambda net: (net.forward(), net.backward()))


def test_what_is_written_counts_at_the_next_call(kept):
    kept.both(lambda net: net.forward())
    for name, view in kept.views.items():
        if name.endswith("data") and name != "y data":  # in the middle of the net too
            values = np.random.default_rng(len(name)).standard_normal(view.size)
            view[...] = values
            target = arrays(kept.twin)[name]
            target[...] = values.reshape(target.shape)
    kept.both(lambda net: net.forward(start=net.layers[6].name))
    for name, target in arrays(kept.twin).items():
        if name != "y data":
            kept.views[name][...] = 0.5
            target[...] = 0.5
    kept.both(lambda net: net.backward())
    kept.both(lambda net: net.forward())


def test_weights_that_are_loaded_or_shared_are_shown(kept, model, tmp_path):
    others = {kept.net: made(model, "reference"), kept.twin: made(model, "reference")}
    for other in others.values():
        other.packed.data[...] = 0.25
        other.save(tmp_path / "w.caffemodel")
        other.packed.data[...] = 0.5
    kept.both(lambda net: net.copy_from(tmp_path / "w.caffemodel"))
    kept.both(lambda net: net.forward())
    kept.both(lambda net: net.share_with(others[net]))
    kept.both(lambda net: (net.forward(), net.backward()))
    name = next(iter(kept.net.params))
    kept.views[f"{name}[0] data"][...] = 3
    kept.net.forward()
    assert (others[kept.net].params[name][0].data == 3).all()


def test_a_blob_that_gets_another_size_leaves_arrays_as_they_are(kept):
    view, net = kept.views["x data"], kept.net
    before = view.copy()
    for batch in (4, 2):
        for name in net.inputs:
            net.blobs[name].reshape(batch, *net.blobs[name].shape[1:])
        if batch == 4:
            net.forward()
            np.testing.assert_array_equal(view, before)
    view[...] = 2
    net.forward()
    assert (net.blobs["x"].data == 2).all()


def test_arrays_that_nobody_has_any_more_are_let_go(kept):
    kept.both(lambda net: net.forward())
    kept.views.clear()
    assert not kept.net.held.holds(kept.net.blobs[kept.net.inputs[0]], "array")
    assert all(blob.data is not None for blob in kept.net.blobs.values())
    out = kept.net.forward()
    assert kept.net.held.holds(kept.net.blobs[kept.net.outputs[0]], "array")
    assert out[kept.net.outputs[0]] is kept.net.blobs[kept.net.outputs[0]].data


# A blob whose values go to other memory, as an engine's do.


def gone():
    """Return a blob, and a user's array of its values, which have gone elsewhere since."""
    blob = Blob((3,))
    array = blob.data
    with blob.held:
        blob.values.take(np.ones(3, np.float32))
    assert (array == 1).all() and not np.shares_memory(array, blob.array)
    return blob, array


def call(blob):
    with blob.held:
        pass


def test_what_is_written_into_an_array_before_it_is_dropped_counts():
    blob, array = gone()
    array[1] = 7
    del array
    np.testing.assert_array_equal(blob.data, [1, 7, 1])


def test_of_two_arrays_the_one_that_was_written_last_counts():
    blob, first = gone()
    first[0] = 7
    second = blob.data
    assert second[0] == 7
    second[0] = 8
    call(blob)
    assert first[0] == second[0] == blob.data[0] == 8


def test_zeros_of_either_sign_and_numbers_that_are_none_count():
    blob, array = gone()
    array[...] = 0
    call(blob)
    array[...] = [-0.0, np.nan, 0]
    call(blob)
    assert np.signbit(blob.data[0]) and np.isnan(blob.data[1])
    blob.array[1] = 3  # a NaN that was not written again leaves other values alone
    call(blob)
    assert blob.data[1] == array[1] == 3


def test_only_what_was_written_counts():
    blob, array = gone()
    array[0] = 7
    blob.array[2] = 5
    call(blob)
    np.testing.assert_array_equal(array, [7, 1, 5])


def test_an_array_has_the_shape_that_its_blob_has():
    blob = Blob((3,))
    kept = blob.data
    blob.reshape(3, 1)
    assert blob.data.shape == (3, 1) and np.shares_memory(blob.data, kept)


def test_an_array_of_another_size_counts_no_more():
    blob, array = gone()
    blob.reshape(2)
    array[...] = 7
    call(blob)
    assert not blob.data.any()


def test_several_threads_may_ask_for_arrays():
    net, errors = made(small, "reference"), []

    def ask():
        try:
            for _ in range(150):
                assert all(array is not None for array in arrays(net).values())
        except RuntimeError as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not errors


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 60, (1, 8, 8))


TESTED = nets.softmax_regression("db") + 'layer { name: "p" type: "Softmax" bottom: "ip" top: "p" }\n'


def solver(engine, keep_diffs=True, **fields):
    how = {"test_iter": [2], "test_interval": 2, "snapshot_prefix": "snap"} | fields
    param = nets.solver_with(TESTED, **how)
    made = Solver(param, compute=Compute(engine=engine, threads=1))
    made.net.keep_diffs = keep_diffs
    for net in made.test_nets:
        net.keep_data = keep_diffs
    return made


@pytest.mark.parametrize("engine", ENGINES)
def test_a_solvers_arrays_show_the_values_after_each_call(images, engine):
    one, other = solver(engine, keep_diffs=False), solver(engine)
    kept = [Kept(one.net, other.net), Kept(one.test_nets[0], other.test_nets[0])]
    for act in (
        lambda solver: solver.step(1),
        lambda solver: solver.step(3),
        lambda solver: solver.test_all(),
        lambda solver: solver.snapshot(),
        lambda solver: solver.solve(),
        lambda solver: solver.restore("snap_iter_4.solverstate"),
        lambda solver: solver.step(2),
        lambda solver: solver.close(),
        lambda solver: solver.net.backward(),
    ):
        for solver_ in (one, other):
            act(solver_)
        for pair in kept:
            pair.compare()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_that_a_user_holds_is_his_own(images, engine):
    """The reader's threads write the next batches into the memory of those that have been used."""
    one, other = solver(engine), solver(engine)
    data = one.net.blobs["data"].data
    for _ in range(12):
        for net in (one.net, other.net):
            net.forward()
        np.testing.assert_array_equal(data, other.net.blobs["data"].data)
        data[...] = 7
    for solver_ in (one, other):
        solver_.close()


def test_what_is_written_into_a_batch_counts(images):
    one = solver("reference")
    one.net.forward()
    one.net.blobs["data"].data[...] = 0
    one.net.params["ip"][1].data[...] = 0
    one.net.forward(start="ip")
    assert not one.net.blobs["ip"].data.any()
    one.close()


# share_with, and what `packed` is then.


def views_the_blobs(net):
    """Say whether `packed.data` is the memory of all parameters."""
    net.packed.data[...] = np.arange(net.packed.data.size)
    return all(
        np.array_equal(blob.data, net.packed.view(net.packed.data, i))
        for i, parameter in enumerate(net.packed.parameters)
        for blob in parameter.blobs
    )


def test_packed_parameters_are_what_the_blobs_view_after_sharing(model):
    net, other = made(model, "reference"), made(model, "reference")
    other.packed.data[...] = 2
    net.share_with(other)
    assert (net.packed.data == 2).all() and views_the_blobs(net)
    assert np.shares_memory(net.packed.data, other.packed.data)
    assert not np.shares_memory(net.packed.diff, other.packed.diff)


def test_moved_parameters_take_those_who_share_them_along(model):
    net, viewer, third = (made(model, "reference") for _ in range(3))
    viewer.share_with(net)
    third.share_with(viewer)
    array = viewer.params["ip" if model is residual else "ip1"][0].data
    net.move_parameters(lambda count: np.zeros(count, np.float32))
    net.packed.data[...] = 4
    viewer.forward()
    for one in (viewer, third):
        assert views_the_blobs(one)
        assert np.shares_memory(one.packed.data, net.packed.data)
    viewer.packed.data[...] = 5
    viewer.forward()
    assert (array == 5).all()


def test_what_is_written_into_a_viewers_array_after_a_move_counts():
    net, viewer = made(small, "reference"), made(small, "reference")
    viewer.share_with(net)
    array = viewer.params["ip1"][0].data
    assert net.move_parameters(lambda count: np.zeros(count, np.float32))  # the viewer's user holds the old memory
    array[...] = 7
    viewer.forward()
    assert (net.params["ip1"][0].data == 7).all()


def test_a_solvers_net_takes_a_net_in_with_its_users_arrays_but_not_those_of_a_third():
    net, other, third = (made(small, "reference") for _ in range(3))
    net.packed.pinned = True
    own = other.params["ip2"][0].data
    del third.params["ip2"]
    other.share_with(third)
    shared = other.params["ip1"][0].data
    net.share_with(other)
    own[...], net.params["ip1"][0].data[...] = 7, 8
    for one in (other, net):
        one.forward()
    assert (net.params["ip2"][0].data == 7).all()
    np.testing.assert_array_equal(shared, third.params["ip1"][0].data)
    assert not (shared == 8).any()


def test_parameters_of_one_size_but_another_shape_are_not_shared():
    net, other = made(small, "reference"), made(small, "reference")
    other.params["ip1"][0].reshape(other.params["ip1"][0].count)
    with pytest.raises(ShapeError, match=r"can't share ip1\[0\]: shape .* here, .* there"):
        net.share_with(other)


def test_packed_parameters_of_a_net_that_shares_some_can_not_be_had_as_one():
    net, other = made(small, "reference"), made(small, "reference")
    del other.params["ip2"]
    net.share_with(other)
    with pytest.raises(NetError, match=r"shares some of its parameters.*net\.params"):
        _ = net.packed.data
    net.clear_param_diffs()
    net.forward()
    other.params["ip1"][0].data[...] = 6
    assert (net.params["ip1"][0].data == 6).all()


def test_sharing_again_leaves_the_first_ones_parameters_alone():
    net, first, second = (made(small, "reference") for _ in range(3))
    net.share_with(first)
    array = net.params["ip1"][0].data
    second.packed.data[...] = 9
    net.share_with(second)
    net.forward()
    assert not (first.params["ip1"][0].data == 9).any()
    assert (net.params["ip1"][0].data == 9).all()
    np.testing.assert_array_equal(array, first.params["ip1"][0].data)


def test_a_net_that_differs_is_refused_and_nothing_is_shared():
    net, other = made(small, "reference"), made(small, "reference")
    other.params["ip2"] = other.params["ip2"][:1]
    with pytest.raises(ShapeError, match=r"ip2: 2 parameter blobs here, 1 there"):
        net.share_with(other)
    assert not np.shares_memory(net.params["conv1"][0].data, other.params["conv1"][0].data)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_solvers_net_that_shares_with_another_trains_both(images, engine):
    """As when fine-tuning in pycaffe: the solver goes on from the other net's values."""
    one, twin = solver(engine), solver(engine)
    pretrained = scaffe.Net(one.net.param, scaffe.TEST, compute=Compute(engine))
    pretrained.params["ip"][0].data[...] = 0.125
    twin.net.params["ip"][0].data[...] = 0.125
    twin.net.params["ip"][1].data[...] = pretrained.params["ip"][1].data
    one.net.share_with(pretrained)
    for solver_ in (one, twin):
        solver_.step(3)
    for i in range(2):
        np.testing.assert_array_equal(one.net.params["ip"][i].data, twin.net.params["ip"][i].data)
        np.testing.assert_array_equal(pretrained.params["ip"][i].data, twin.net.params["ip"][i].data)
    with pytest.raises(ScaffeError, match="both solvers'.*copy_from"):
        one.net.share_with(twin.net)
    for net in (one.net, twin.net, pretrained):
        net.close()
    for solver_ in (one, twin):
        solver_.close()
