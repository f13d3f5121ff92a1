"""Python layers: a user's own module, with permission and without, as one of the layers of a net."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from gradient_check import check_gradients, contexts, distinct

import scaffe
from scaffe.cli import main
from scaffe.compute import ENGINES, Compute
from scaffe.context import Context
from scaffe.errors import NetError
from scaffe.proto import NetParameter
from scaffe.pycaffe import names

LAYERS = '''
import numpy as np

import caffe


class Affine(caffe.Layer):
    """y = factor x + shift, the factor learned."""

    def setup(self, bottom, top):
        self.shift = float(self.param_str)
        self.blobs.add_blob(bottom[0].shape[1])
        self.blobs[0].data[...] = 2

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * self.blobs[0].data + self.shift

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += (top[0].diff * bottom[0].data).sum(axis=0)
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.blobs[0].data


class MeanSquare(caffe.Layer):
    """The loss of pycaffe's own example: half the mean squared distance."""

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("Need two inputs to compute distance.")

    def reshape(self, bottom, top):
        self.diff = np.zeros_like(bottom[0].data)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.diff[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.diff**2) / bottom[0].num / 2.0

    def backward(self, top, propagate_down, bottom):
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                bottom[i].diff[...] = sign * self.diff / bottom[i].num * top[0].diff


class Phase(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(int(bottom[0].data[0]))

    def forward(self, bottom, top):
        top[0].data[...] = self.phase == caffe.TRAIN


class Keeper(caffe.Layer):
    """y = 2 x, through arrays that were asked for once."""

    def setup(self, bottom, top):
        self.kept = None

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
        if self.kept is None:
            self.kept = bottom[0].data, top[0].data, bottom[0].diff, top[0].diff

    def forward(self, bottom, top):
        x, y, *_ = self.kept
        y[...] = 2 * x

    def backward(self, top, propagate_down, bottom):
        *_, dx, dy = self.kept
        dx[...] = 2 * dy


NOT_A_CLASS = 7
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write the users' layers to a module of its own, and return its name."""
    name = f"user_layers_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(LAYERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != names.ALIAS])
    forget("caffe")  # which a command installs
    yield name
    forget("caffe", name)


def forget(*packages):
    """Make Python import these packages anew."""
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        del sys.modules[name]


def text(module, layer, param_str=""):
    return f'type: "Python" python_param {{ module: "{module}" layer: "{layer}" param_str: "{param_str}" }}'


def allowed(**fields):
    return Context(compute=Compute(allow_python_layers=True), **fields)


def test_gradients_of_a_users_layer_agree_with_finite_differences(module):
    check_gradients(text(module, "Affine", "0.5"), distinct(3, 4), context=allowed())


def net(module, options):
    layers = [
        {"name": "in", "type": "Input", "top": ["x", "t"], "input_param": {"shape": [{"dim": [6, 4]}]}},
        {"name": "affine", "type": "Python", "bottom": ["x"], "top": ["y"],
         "python_param": {"module": module, "layer": "Affine", "param_str": "0.5"}},
        {"name": "loss", "type": "Python", "bottom": ["y", "t"], "top": ["loss"], "loss_weight": [1],
         "python_param": {"module": module, "layer": "MeanSquare"}},
    ]  # fmt: skip
    return scaffe.Net(NetParameter(layer=layers), **options)


def test_a_net_of_users_layers_learns_what_its_own_layers_would(module):
    it = net(module, {"phase": scaffe.TRAIN, "allow_python_layers": True})
    x, target = distinct(6, 4).astype(np.float32), distinct(6, 4, seed=1).astype(np.float32)
    (loss,) = it.forward(x=x, t=target)["loss"]
    it.backward()
    y = 2 * x + 0.5
    assert loss == pytest.approx(((y - target) ** 2).sum() / 12)
    np.testing.assert_allclose(it.params["affine"][0].diff, ((y - target) * x).sum(axis=0) / 6, rtol=1e-5, atol=1e-7)


def test_what_the_users_object_has_is_had_from_the_nets_layer(module):
    it = net(module, {"phase": scaffe.TRAIN, "allow_python_layers": True})
    layer = it.layers[it._layer_names.index("affine")]
    assert (layer.shift, layer.param_str, layer.type) == (0.5, "0.5", "Python") and layer.user.type == "Python"
    assert layer.blobs[0] is it.params["affine"][0]
    with pytest.raises(AttributeError, match="no attribute 'scale'"):
        _ = layer.scale


def test_losses_of_all_ranks_add_up_to_one_ranks(module):
    x, target = distinct(6, 4), distinct(6, 4, seed=1)
    results = []
    for ranks in (1, 2, 4):
        loss, gradient = 0.0, 0.0
        for context in contexts(6, ranks, compute=Compute(allow_python_layers=True)):
            it = net(module, {"context": context})
            rows = slice(context.first_row, context.first_row + context.local_rows)
            it.forward(x=x[rows], t=target[rows])
            it.backward()
            loss, gradient = loss + it.loss(), gradient + it.params["affine"][0].diff
        results.append((loss, gradient))
    for loss, gradient in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-6)
        np.testing.assert_allclose(gradient, results[0][1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine not in ("auto", "cuda")])
def test_arrays_that_a_users_layer_has_kept_show_the_values_and_count(module, engine):
    """The convolutions around it compute in the engine's own layout, so that its blobs' plain arrays come and go."""
    keeper = {"type": "Python", "python_param": {"module": module, "layer": "Keeper"}}
    its, power = (
        scaffe.Net(NetParameter(layer=around(twice)), scaffe.TRAIN, compute=Compute(engine), allow_python_layers=True)
        for twice in (keeper, {"type": "Power", "power_param": {"scale": 2}})
    )
    power.packed.data[...] = its.packed.data
    for seed in range(3):
        for one in (its, power):
            one.clear_param_diffs()
            one.forward(x=distinct(2, 3, 8, 8, seed=seed), t=distinct(2, 16, 8, 8, seed=9))
            one.backward()
        for mine, expected in ((its.blobs["b"].data, power.blobs["b"].data), (its.packed.diff, power.packed.diff)):
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def around(twice):
    """Return the layers of a net with the layer `twice` between two convolutions."""
    convolution = {"num_output": 16, "kernel_size": [3], "pad": [1], "weight_filler": {"type": "xavier"}}
    shapes = [{"dim": [2, 3, 8, 8]}, {"dim": [2, 16, 8, 8]}]
    return [
        {"name": "in", "type": "Input", "top": ["x", "t"], "input_param": {"shape": shapes}},
        {"name": "a", "type": "Convolution", "bottom": ["x"], "top": ["a"], "convolution_param": convolution},
        {"name": "it", "bottom": ["a"], "top": ["y"], **twice},
        {"name": "b", "type": "Convolution", "bottom": ["y"], "top": ["b"], "convolution_param": convolution},
        {"name": "loss", "type": "EuclideanLoss", "bottom": ["b", "t"], "top": ["loss"]},
    ]


def test_what_a_users_layer_writes_into_an_array_that_it_has_kept_counts(module):
    """Flatten gives its top other memory in each pass, so that the kept array is no longer the blob's own."""
    layers = [
        {"name": "in", "type": "Input", "top": ["x"], "input_param": {"shape": [{"dim": [2, 3, 4]}]}},
        {"name": "flat", "type": "Flatten", "bottom": ["x"], "top": ["f"]},
        {"name": "it", "type": "Python", "bottom": ["f"], "top": ["f"],
         "python_param": {"module": module, "layer": "Keeper"}},
        {"name": "after", "type": "Power", "bottom": ["f"], "top": ["y"], "power_param": {"shift": 1}},
    ]  # fmt: skip
    it = scaffe.Net(NetParameter(layer=layers), scaffe.TEST, allow_python_layers=True)
    for seed in range(3):
        x = distinct(2, 3, 4, seed=seed).astype(np.float32)
        np.testing.assert_array_equal(it.forward(x=x)["y"], 2 * x.reshape(2, 12) + 1)


@pytest.mark.parametrize("phase", [scaffe.TRAIN, scaffe.TEST])
def test_shapes_may_follow_from_values_and_the_phase_is_known(module, phase):
    layers = [
        {"name": "in", "type": "Input", "top": ["n"], "input_param": {"shape": [{"dim": [1]}]}},
        {"name": "it", "type": "Python", "bottom": ["n"], "top": ["y"],
         "python_param": {"module": module, "layer": "Phase"}},
    ]  # fmt: skip
    it = scaffe.Net(NetParameter(layer=layers), phase, allow_python_layers=True)
    for count in (3, 5):
        np.testing.assert_array_equal(it.forward(n=[count])["y"], [phase == scaffe.TRAIN] * count)


def test_without_permission_no_code_is_run(module):
    with pytest.raises(NetError, match="layer 'affine'.*--allow-python-layers"):
        net(module, {"phase": scaffe.TRAIN})
    assert module not in sys.modules


@pytest.mark.parametrize(("first", "name"), [("scaffe", "caffe"), ("scaffe.pycaffe", "scaffe.pycaffe")])
def test_caffe_is_there_for_the_import_alone_and_whole_once_scaffe_pycaffe_is_imported(module, tmp_path, first, name):
    program = f"""
import sys
import {first}, scaffe
net = scaffe.NetSpec()
net.x = scaffe.layers.Input(shape=dict(dim=[2, 3]))
net.y = scaffe.layers.Python(net.x, module="{module}", layer="Affine", param_str="1")
scaffe.Net(net.to_proto(), scaffe.TEST, allow_python_layers=True)
print(sys.modules["{module}"].caffe.__name__, [name for name in sys.modules if name.startswith("caffe")])
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{name} []\n"


def test_a_folder_that_is_called_caffe_is_no_caffe(module, tmp_path):
    (tmp_path / "caffe" / "python").mkdir(parents=True)
    for known in (False, True):  # to Python, as a package without a file
        if known:
            sys.modules.pop(module)
            import_module("caffe")
        net(module, {"phase": scaffe.TRAIN, "allow_python_layers": True})
        assert ("caffe" in sys.modules) == known
    del sys.modules["caffe"]


REAL = """
class Layer:
    def __init__(self, c_plus_plus_object):
        raise TypeError

    @property
    def blobs(self):
        raise TypeError


TRAIN, TEST, real = 0, 1, True
"""


def test_a_real_caffe_goes_before_the_stand_in(module, tmp_path):
    (tmp_path / "caffe.py").write_text(REAL)
    try:
        it = net(module, {"phase": scaffe.TRAIN, "allow_python_layers": True})
        assert sys.modules[module].caffe.real
        assert it.forward(x=np.ones((6, 4)), t=np.zeros((6, 4)))["loss"] == pytest.approx(4 * 2.5**2 / 2)
    finally:
        sys.modules.pop("caffe", None)


@pytest.mark.parametrize(
    ("name", "layer", "message"),
    [
        ("no_such_module", "Affine", "can't import module 'no_such_module'.*PYTHONPATH"),
        (None, "Missing", "no class 'Missing'"),
        (None, "NOT_A_CLASS", "no class 'NOT_A_CLASS'"),
        (None, "", "needs layer"),
        ("", "Affine", "needs module"),
    ],
)
def test_what_cannot_be_found_is_named(module, name, layer, message):
    with pytest.raises(NetError, match=f"layer 'it'.*{message}"):
        check_gradients(text(module if name is None else name, layer), distinct(2, 2), context=allowed())


def test_errors_of_the_users_own_code_are_left_as_they_are(module):
    with pytest.raises(Exception, match="Need two inputs"):
        check_gradients(text(module, "MeanSquare"), distinct(2, 2), context=allowed())


SOLVER = """
base_lr: 0.125 lr_policy: "fixed" max_iter: 1 random_seed: 1 snapshot_after_train: false test_iter: 1 test_interval: 1
net_param {{
  layer {{ name: "data" type: "DummyData" top: "x" top: "t" dummy_data_param {{ shape {{ dim: 6 dim: 4 }}
    data_filler {{ type: "constant" value: 1 }} }} }}
  layer {{ name: "affine" {affine} bottom: "x" top: "y" }}
  layer {{ name: "loss" {loss} bottom: "y" bottom: "t" top: "loss" loss_weight: 1 }}
}}
"""


@pytest.mark.parametrize(
    ("flags", "code", "said"), [(["--allow_python_layers"], 0, ""), ([], 2, "--allow-python-layers")]
)
def test_the_command_line_trains_and_tests_with_users_layers_where_it_is_told_to(
    module, tmp_path, capfd, flags, code, said
):
    solver = tmp_path / "solver.prototxt"
    snippets = {"affine": text(module, "Affine", "0.5"), "loss": text(module, "MeanSquare")}
    solver.write_text(SOLVER.format(**snippets))
    assert main(["train", "--solver", str(solver), *flags]) == code
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("earlier", "now"), [("gpu", "engine.gpu"), ("threads", "compute.threads"), ("graphs", "compute.graphs")]
)
def test_an_earlier_attribute_of_the_context_is_an_error_with_the_new_one(earlier, now):
    with pytest.raises(AttributeError, match=rf"^context\.{earlier} has moved: write context\.{now}$"):
        getattr(Context(), earlier)
