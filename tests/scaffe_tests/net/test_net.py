"""Net: pycaffe's interface, shared parameters, loss weights, the packed buffer."""

import numpy as np
import pytest
from google.protobuf import text_format
from over_ranks import net_of

import scaffe
from scaffe.errors import CallError, NetError, PrototxtError, ScaffeError, ShapeError, UnknownBlobError, WeightsError
from scaffe.files.weights import content, serialised
from scaffe.proto import NetParameter, SolverParameter
from scaffe.proto.files import read_weights
from scaffe.training import solver_nets


def build(text, phase=scaffe.TRAIN, **options):
    return scaffe.Net(text_format.Parse(text, NetParameter()), phase, **options)


def ip(name, bottom, top, outputs=3, more=""):
    return f"""layer {{ name: '{name}' type: 'InnerProduct' bottom: '{bottom}' top: '{top}' {more}
        inner_product_param {{ num_output: {outputs} weight_filler {{ type: 'xavier' }}
        bias_filler {{ type: 'constant' value: 0.5 }} }} }}\n"""


INPUT = "layer { name: 'in' type: 'Input' top: 'x' top: 't' input_param { shape { dim: 4 dim: 3 } } }\n"
LOSS = "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'loss' }\n"


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)


def test_forward_takes_inputs_by_name_and_returns_outputs(x):
    net = build(INPUT + ip("ip", "x", "y") + LOSS)
    assert net.inputs == ["x", "t"]
    assert net.outputs == ["loss"]
    out = net.forward(x=x, t=np.zeros_like(x))
    weights, bias = (blob.data for blob in net.params["ip"])
    y = x @ weights.T + bias
    assert np.allclose(net.blobs["y"].data, y, rtol=1e-6)
    assert np.allclose(out["loss"], (y**2).sum() / 8, rtol=1e-6)
    assert set(net.forward(blobs=["y"])) == {"loss", "y"}


def test_backward_returns_the_gradients_of_the_inputs_it_was_forced_to(x):
    net = build("force_backward: true\n" + INPUT + ip("ip", "x", "y") + LOSS)
    net.forward(x=x, t=np.zeros_like(x))
    diffs = net.backward()
    y = net.blobs["y"].data
    assert np.allclose(diffs["x"], y @ net.params["ip"][0].data / 4, rtol=1e-5)


def test_parts_of_the_net_run_alone(x):
    net = build(INPUT + ip("a", "x", "h") + ip("b", "h", "y") + LOSS)
    net.blobs["x"].data[...] = x
    assert list(net.forward(end="a")) == ["h"]
    h = net.blobs["h"].data.copy()
    net.blobs["h"].data[...] = 1
    net.forward(start="b", end="b")
    weights, bias = (blob.data for blob in net.params["b"])
    assert np.allclose(net.blobs["y"].data, np.ones((4, 3)) @ weights.T + bias, rtol=1e-6)
    assert not np.allclose(h, 1)


def test_unknown_names_are_answered_with_the_known_ones(x):
    net = build(INPUT + ip("ip", "x", "y") + LOSS)
    with pytest.raises(ScaffeError, match="no layer 'ipp'; did you mean 'ip'"):
        net.forward(start="ipp")
    with pytest.raises(ValueError, match="layer 'loss' is after 'ip' in the net: exchange start and end"):
        net.forward(start="loss", end="ip")
    with pytest.raises(ValueError, match="layer 'loss' is after 'ip' in the net: exchange start and end"):
        net.backward(start="ip", end="loss")
    with pytest.raises(ScaffeError, match="'z' can't be given data; the net's blobs that can: x t"):
        net.forward(z=x)
    with pytest.raises(ShapeError, match=r"blob 'x' has shape \(4, 3\), got \(2, 3\)"):
        net.forward(x=x[:2])
    with pytest.raises(ScaffeError, match="needs a phase"):
        scaffe.Net(NetParameter())


def test_errors_of_names_and_shapes_are_those_of_lists_dictionaries_and_numpy(x):
    net = build(INPUT + ip("ip", "x", "y") + LOSS)
    for call, kind in [
        (lambda: net.forward(end="z"), ValueError),
        (lambda: net.backward(start="z"), ValueError),
        (lambda: net.forward(z=x), KeyError),
        (lambda: net.forward(blobs=["z"], x=x), KeyError),
        (lambda: net.backward(diffs=["z"]), KeyError),
        (lambda: net.forward(x=x[:2]), ValueError),
        (lambda: net.blobs["x"].reshape("2"), TypeError),
        (lambda: net.blobs["x"].reshape((2, 3)), TypeError),
        (lambda: net._forward(0, 9), ValueError),
        (lambda: net._forward(0, len(net.layers)), ValueError),
        (lambda: net._backward(2, -1), ValueError),
        (lambda: net.set_input_arrays(x, x), RuntimeError),
        (lambda: net.share_with(None), TypeError),
        (lambda: scaffe.Net('name: "n"\n', scaffe.TEST), TypeError),
    ]:
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value, ScaffeError)


def test_nothing_is_computed_where_a_blob_to_return_is_unknown(x):
    net = build(INPUT + ip("ip", "x", "y"))
    with pytest.raises(UnknownBlobError, match="^no blob 'z'; blobs: x t y$"):
        net.forward(blobs=["y", "z"], x=x)
    assert not net.blobs["y"].data.any()


def test_inputs_are_repeated_as_numpy_does_but_not_along_the_batch(x):
    net = build(INPUT + ip("ip", "x", "y"))
    net.forward(x=x[:, :1], t=2 * np.ones((4, 1)))
    assert np.array_equal(net.blobs["x"].data, np.repeat(x[:, :1], 3, 1))
    for wrong in (x[:1], x[0], np.float32(1), x[:, :2], x[None]):
        with pytest.raises(ShapeError, match=r"blob 'x' has shape \(4, 3\), got"):
            net.forward(x=wrong)


def test_passes_by_number_are_those_by_name_and_return_their_part_of_the_loss(x):
    second = LOSS.replace("'loss'", "'more'")[:-2] + "loss_weight: 3 }"
    net = build("force_backward: true\n" + INPUT + ip("ip", "x", "y") + LOSS + second)
    names, t = net._layer_names, np.ones_like(x)
    net.forward(x=x, t=t)
    loss = ((net.blobs["y"].data - t) ** 2).sum() / 8
    assert net._forward(0, len(names) - 1) == pytest.approx(4 * loss)
    assert net._forward(names.index("more"), len(names) - 1) == pytest.approx(3 * loss)
    assert net._forward(names.index("ip"), names.index("ip")) == 0
    expected = net.backward()["x"].copy()
    net.blobs["x"].diff[...] = 0
    net._backward(len(names) - 1, 0)
    assert np.array_equal(net.blobs["x"].diff, expected) and expected.any()


def test_outputs_are_the_blobs_own_arrays_and_a_loss_has_no_axes(x):
    net = build(INPUT + ip("ip", "x", "y") + LOSS)
    out = net.forward(blobs=["y"], x=x, t=x)
    before = {name: values.copy() for name, values in out.items()}
    assert out["loss"].shape == () and out["loss"].dtype == np.float32
    net.forward(x=2 * x)
    for name, values in out.items():
        assert np.array_equal(values, net.blobs[name].data) and not np.array_equal(values, before[name])
    out["y"][...] = 0
    assert net.forward(start="loss")["loss"] == pytest.approx((x**2).sum() / 8)


def test_a_reshaped_input_reshapes_the_net(x):
    net = build(INPUT + ip("ip", "x", "y"))
    net.forward(x=x)
    net.blobs["x"].reshape(7, 3)
    net.reshape()
    assert net.blobs["y"].shape == (7, 3)
    net.blobs["x"].reshape(2, 3)
    assert net.forward(x=x[:2])["y"].shape == (2, 3)


def test_a_loss_weight_scales_the_gradient_and_the_loss(x):
    plain = build(INPUT + ip("ip", "x", "y") + LOSS)
    tripled = build(INPUT + ip("ip", "x", "y") + LOSS[:-2] + "loss_weight: 3 }")
    for net in (plain, tripled):
        net.params["ip"][0].data[...] = 0.1
        net.forward(x=x, t=np.zeros_like(x))
        net.clear_param_diffs()
        net.backward()
    assert tripled.loss() == pytest.approx(3 * plain.loss())
    assert np.allclose(tripled.params["ip"][0].diff, 3 * plain.params["ip"][0].diff, rtol=1e-6)


def test_a_loss_that_is_used_again_still_counts(x):
    again = "layer { name: 'r' type: 'ReLU' bottom: 'loss' top: 'z' }"
    net = build(INPUT + ip("ip", "x", "y") + LOSS[:-2] + "loss_weight: 1 }" + again)
    net.forward(x=x, t=np.zeros_like(x))
    net.clear_param_diffs()
    net.backward()
    alone = build(INPUT + ip("ip", "x", "y") + LOSS)
    alone.params["ip"][0].data[...] = net.params["ip"][0].data
    alone.forward(x=x, t=np.zeros_like(x))
    alone.clear_param_diffs()
    alone.backward()
    assert net.loss() == pytest.approx(alone.loss())
    assert np.allclose(net.params["ip"][0].diff, alone.params["ip"][0].diff, rtol=1e-6)


def test_a_loss_without_a_top_counts_and_is_no_output(x):
    net = build(INPUT + ip("ip", "x", "y") + LOSS.replace("top: 'loss'", ""))
    net.forward(x=x, t=np.zeros_like(x))
    net.clear_param_diffs()
    net.backward()
    assert net.outputs == []
    assert net.loss() == pytest.approx((net.blobs["y"].data ** 2).sum() / 8)
    assert np.allclose(net.params["ip"][1].diff, net.blobs["y"].data.sum(0) / 4, rtol=1e-5)


SHARED = "param {{ name: 'w' lr_mult: {} }} param {{ name: 'b' }}"


def test_shared_parameters_are_one_and_add_their_gradients(x):
    net = build(INPUT + ip("a", "x", "h", 3, SHARED.format(2)) + ip("b", "h", "y", 3, SHARED.format(2)) + LOSS)
    assert [p.label for p in net.parameters] == ["a[0]", "a[1]"]
    assert net.parameters[0].rate == 2
    net.params["b"][0].data[0, 0] = 7
    assert net.params["a"][0].data[0, 0] == 7
    net.forward(x=x, t=np.zeros_like(x))
    net.clear_param_diffs()
    net.backward(end="b")
    once = net.params["a"][1].diff.copy()
    net.backward(start="a")
    second = net.blobs["h"].diff.sum(0)
    assert np.allclose(net.params["a"][1].diff, once + second, rtol=1e-5)


def test_shared_parameters_that_disagree_are_named():
    with pytest.raises(ShapeError, match=r"'w': a\[0\] has shape \(3, 3\), b\[0\] \(2, 3\)"):
        build(INPUT + ip("a", "x", "h", 3, SHARED.format(1)) + ip("b", "h", "y", 2, SHARED.format(1)))
    with pytest.raises(NetError, match=r"lr_mult is 1 in a\[0\] and 2 in b\[0\]"):
        build(INPUT + ip("a", "x", "h", 3, SHARED.format(1)) + ip("b", "h", "y", 3, SHARED.format(2)))


def test_parameters_stand_packed_in_layer_order_on_64_byte_boundaries():
    net = build(INPUT + ip("a", "x", "h", 5) + ip("b", "h", "y", 3) + LOSS)
    packed = net.packed
    assert [p.label for p in packed.parameters] == ["a[0]", "a[1]", "b[0]", "b[1]"]
    for parameter, part in zip(packed.parameters, packed.slices, strict=True):
        assert parameter.blob.data.ctypes.data == packed.data[part].ctypes.data
        assert parameter.blob.diff.ctypes.data == packed.diff[part].ctypes.data
        assert parameter.blob.data.ctypes.data % 64 == 0
    packed.data[...] = 2
    assert (net.params["b"][0].data == 2).all()
    assert packed.nbytes == 4 * (16 + 16 + 16 + 16)


def test_a_frozen_layer_gets_no_gradient(x):
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    net = build(INPUT + ip("a", "x", "h", 3, frozen) + ip("b", "h", "y") + LOSS)
    net.forward(x=x, t=np.zeros_like(x))
    net.clear_param_diffs()
    net.backward()
    assert not net.params["a"][0].diff.any()
    assert net.params["b"][0].diff.any()


def test_weights_go_round_through_a_file_and_by_layer_name(tmp_path, x):
    net = build(INPUT + ip("a", "x", "h") + ip("b", "h", "y"))
    net.save(tmp_path / "w.caffemodel")
    same = scaffe.Net(net.param, str(tmp_path / "w.caffemodel"), scaffe.TEST)
    assert np.array_equal(same.params["b"][0].data, net.params["b"][0].data)
    other = build(INPUT + ip("a", "x", "h") + ip("new", "h", "y"))
    kept = other.params["new"][0].data.copy()
    other.copy_from(tmp_path / "w.caffemodel")
    assert np.array_equal(other.params["a"][0].data, net.params["a"][0].data)
    assert np.array_equal(other.params["new"][0].data, kept)


def test_a_stored_net_is_the_message_that_caffe_stored(cases, monkeypatch):
    monkeypatch.chdir(cases / "caffe" / "artefacts")
    net = scaffe.Net("quick_xavier.prototxt", "quick_xavier_init.caffemodel", scaffe.TRAIN)
    stored = NetParameter.FromString(b"".join(serialised(content(net))))
    for message in (stored, *(blob for layer in stored.layer for blob in layer.blobs)):
        for field in {"sealed", "checksum", "input_transform"}.intersection(
            message.DESCRIPTOR.fields_by_name
        ):  # ours, which Caffe skips
            message.ClearField(field)
    assert stored == read_weights("quick_xavier_init.caffemodel")


def test_hdf5_weights_go_round_whatever_the_files_name(tmp_path):
    h5py = pytest.importorskip("h5py")
    net = build(INPUT + ip("a", "x", "h") + ip("b", "h", "y"))
    net.save_hdf5(tmp_path / "w.bin")
    with h5py.File(tmp_path / "w.bin") as file:
        assert np.array_equal(file["data/b/0"], net.params["b"][0].data) and "diff" not in file
    for load in (scaffe.Net.load_hdf5, scaffe.Net.copy_from):
        other = build(INPUT + ip("a", "x", "h") + ip("new", "h", "y"))
        kept = other.params["new"][0].data.copy()
        load(other, tmp_path / "w.bin")
        assert np.array_equal(other.params["a"][0].data, net.params["a"][0].data)
        assert np.array_equal(other.params["new"][0].data, kept)
    net.save(tmp_path / "w.caffemodel")
    with pytest.raises(PrototxtError, match="w.caffemodel: a damaged HDF5 file"):
        net.load_hdf5(tmp_path / "w.caffemodel")


def test_weights_of_other_shapes_change_nothing_and_name_the_layer(tmp_path):
    build(INPUT + ip("a", "x", "h") + ip("b", "h", "y", 2)).save(tmp_path / "w.caffemodel")
    net = build(INPUT + ip("a", "x", "h") + ip("b", "h", "y", 3))
    before = net.packed.data.copy()
    with pytest.raises(WeightsError, match=r"layer 'b', blob 0: shape \(3, 3\) in the net, \(2, 3\) in the file"):
        net.copy_from(tmp_path / "w.caffemodel")
    assert np.array_equal(net.packed.data, before)


def test_a_net_shares_anothers_parameters():
    train, test = build(INPUT + ip("a", "x", "h")), build(INPUT + ip("a", "x", "h"), scaffe.TEST)
    test.share_with(train)
    train.packed.data[...] = 3
    assert (test.params["a"][0].data == 3).all()
    with pytest.raises(ShapeError, match=r"a\[0\]: shape \(2, 3\) here, \(3, 3\) there"):
        build(INPUT + ip("a", "x", "h", 2)).share_with(train)


def test_two_layers_can_not_make_one_blob():
    with pytest.raises(NetError, match="'b': another layer already produces its top 'h'"):
        build(INPUT + ip("a", "x", "h") + ip("b", "x", "h"))


def test_the_same_seed_gives_the_same_parameters_and_another_gives_others():
    from scaffe.context import Context

    text = text_format.Parse(INPUT + ip("a", "x", "h"), NetParameter())
    first, again, other = (scaffe.Net(text, context=Context(seed=seed)).packed.data for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


LEVELS = (
    INPUT
    + ip("always", "x", "y")
    + ip("deep", "y", "d", more="include { min_level: 1 }")
    + ip("shallow", "y", "s", more="include { max_level: 0 }")
    + ip("staged", "y", "g", more="include { stage: 'a' stage: 'b' }")
)


@pytest.mark.parametrize(
    ("own", "given", "there"),
    [
        ("", {}, {"always", "shallow"}),
        ("", {"level": 1}, {"always", "deep"}),
        ("", {"level": 0}, {"always", "shallow"}),
        ("state { level: 1 }", {}, {"always", "deep"}),
        ("state { level: 1 }", {"level": 0}, {"always", "shallow"}),
        ("state { level: 0 }", {"level": 2, "stages": ["b", "a"]}, {"always", "deep", "staged"}),
        ("state { stage: 'a' }", {"stages": ["b"]}, {"always", "shallow", "staged"}),
        ("state { phase: TRAIN stage: 'a' }", {}, {"always", "shallow"}),
    ],
)
def test_level_takes_the_place_of_the_files_and_stages_join_them(tmp_path, own, given, there):
    path = tmp_path / "net.prototxt"
    path.write_text(own + LEVELS)
    assert scaffe.Net(path, scaffe.TEST, **given).params.keys() == there
    assert build(own + LEVELS, scaffe.TEST, **given).params.keys() == there


def test_arguments_are_taken_by_place_and_by_name(tmp_path):
    path, weights = str(tmp_path / "net.prototxt"), str(tmp_path / "w.caffemodel")
    (tmp_path / "net.prototxt").write_text(LEVELS)
    net = scaffe.Net(path, scaffe.TEST, 1, ["a", "b"])
    assert net.params.keys() == {"always", "deep", "staged"} and not net.trains
    net.params["deep"][1].data[...] = 7
    net.save(weights)
    for same in (
        scaffe.Net(path, scaffe.TRAIN, 1, ["a", "b"], weights),
        scaffe.Net(network_file=path, phase=scaffe.TRAIN, level=1, stages=["a", "b"], weights=weights),
        scaffe.Net(path, weights, scaffe.TRAIN, level=1, stages=["a", "b"]),
        scaffe.Net(path, scaffe.TRAIN, weights, level=1, stages=["a", "b"]),
        scaffe.Net(model=net.param, phase=scaffe.TRAIN, level=1, stages=["a", "b"], weights=weights),
    ):
        assert same.params.keys() == net.params.keys() and same.trains
        assert (same.params["deep"][1].data == 7).all()
    plain = scaffe.Net(path, scaffe.TEST, level=0, stages=None, weights=None)
    assert plain.params.keys() == {"always", "shallow"}


@pytest.mark.parametrize(
    ("args", "named", "text"),
    [
        ((), {"phase": 1}, "a net needs network_file, the path of a prototxt or a NetParameter, got None"),
        ((3, 1), {}, "a net needs network_file, .* got 3"),
        (("net",), {}, "a net needs a phase: scaffe.TRAIN or scaffe.TEST"),
        (("net", 7), {}, r"phase must be scaffe.TRAIN \(0\) or scaffe.TEST \(1\), got 7"),
        (("net", 1), {"phase": 1}, r"a net takes a file, phase, level, stages, weights; got 1 of these; 'phase' twice"),
        (("net", 1, 0, [], None, 5), {}, "a net takes a file, phase, level, stages, weights; got 5 of these$"),
        (("net", "weights", 1, 5), {}, "a net takes a file, weights, phase; got 3 of these$"),
    ],
)
def test_arguments_that_are_missing_or_wrong_are_named(args, named, text):
    with pytest.raises(CallError, match=text):
        scaffe.Net(*args, **named)
    with pytest.raises(TypeError):
        scaffe.Net(*args, **named)


def test_a_stage_that_is_no_list_is_refused():
    with pytest.raises(NetError, match="stages must be a list of names, got 'ab'"):
        build(LEVELS, stages="ab")


@pytest.mark.parametrize(
    ("own", "state", "deep"),
    [
        ("", "", False),
        ("", "level: 1", True),
        ("state { level: 1 }", "", True),
        ("state { level: 1 }", "level: 0", False),
        ("state { level: 1 }", "stage: 'a'", True),
    ],
)
def test_a_solvers_states_are_merged_over_the_nets(own, state, deep):
    net = f"net_param {{ {own} {LEVELS} }} test_iter: 1 test_interval: 9"
    param = text_format.Parse(f"{net} train_state {{ {state} }} test_state {{ {state} }}", SolverParameter())
    for one in (solver_nets.train_net(param), *solver_nets.test_nets(param)):
        built = scaffe.Net(one, scaffe.TRAIN)
        assert ("deep" in built.params, "shallow" in built.params) == (deep, not deep)


def test_layers_with_parameters_need_names_those_without_do_not(x):
    relu = "layer { type: 'ReLU' bottom: 'y' top: 'y' }\n"
    net = build(INPUT + ip("", "x", "y") + relu + relu)
    assert list(net.params) == [""]
    with pytest.raises(NetError, match=r"2 layers with parameters have no name \(InnerProduct with"):
        build(INPUT + ip("", "x", "y") + relu + ip("", "y", "z"))


@pytest.mark.parametrize("content", ["", "name: 'n' # layer { }", "state { level: 1 }"])
def test_a_file_without_layers_is_refused_with_its_path(tmp_path, content):
    (tmp_path / "net.prototxt").write_text(content)
    with pytest.raises(ScaffeError, match=r"net\.prototxt: no layers in it"):
        scaffe.Net(tmp_path / "net.prototxt", scaffe.TEST)


TIED = {
    "InnerProduct over axis 0": "inner_product_param { num_output: 3 axis: 0 weight_filler { type: 'xavier' } }",
    "LSTM": "recurrent_param { num_output: 2 }",
}


@pytest.mark.parametrize("kind", TIED)
def test_a_net_that_ties_samples_together_is_not_divided_and_names_the_layer(kind):
    shapes = "shape { dim: 4 dim: 3 dim: 2 } shape { dim: 4 dim: 3 }"
    head = f"layer {{ name: 'in' type: 'Input' top: 'x' top: 'cont' input_param {{ {shapes} }} }}"
    bottoms = "bottom: 'x' bottom: 'cont'" if kind == "LSTM" else "bottom: 'x'"
    text = f"{head} layer {{ name: 'tied' type: '{kind.split()[0]}' {bottoms} top: 'y' {TIED[kind]} }}"
    net_of(text).close()
    net_of(text, size=2, scaling="weak").close()
    with pytest.raises(NetError, match=rf"layer 'tied' \({kind.split()[0]}\).*can't be divided over 2 ranks"):
        net_of(text, size=2)
