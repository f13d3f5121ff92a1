"""Blobs that lie channels last, in bfloat16 or float32: what users and layers see of them, and which blobs do."""

import fake_cublas
import numpy as np
import pytest
from both_engines import assert_alike, build
from cudnn_gpu import gpu_with
from strict_arrays import a_gpu

import scaffe
from scaffe import engines, models
from scaffe.blob import Blob
from scaffe.compute import Compute
from scaffe.engines.cuda import Cuda
from scaffe.engines.cuda.forms import ChannelsLast, arrays, data, diff, last_shape
from scaffe.engines.cuda.layouts import BF16
from scaffe.engines.cuda.typed_blobs import TypedBlobs

SHAPE = 2, 5, 3, 4


@pytest.fixture(scope="module")
def engine():
    return Cuda(a_gpu())


def typed(engine, dtype, shape=SHAPE):
    """Return a blob whose values and gradient have a home."""
    blob, xp = Blob(shape, engine.xp), engine.gpu.xp
    for values in (blob.values, blob.diff_values):
        values.move_in(ChannelsLast(engine, xp.zeros(last_shape(shape), dtype)), shared=False)
    return blob


def numbers(seed=0):
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize(("dtype", "bits"), [(BF16, 7), (np.float32, 23)])
def test_users_see_float32_in_c_order(engine, dtype, bits):
    blob, x = typed(engine, dtype), numbers()
    blob.data[...] = x
    is_last, (array,) = arrays([data(blob)])
    assert is_last and array.dtype == dtype and array.shape == (2, 3, 4, 5)
    rounded = fake_cublas.rounded(x, bits)
    np.testing.assert_array_equal(blob.data, rounded)
    np.testing.assert_array_equal(blob.array.get(), rounded)
    assert blob.array.dtype == np.float32 and not blob.diff.any()


def test_what_a_layer_writes_into_the_plain_array_others_read_channels_last(engine):
    blob, x = typed(engine, BF16), numbers()
    blob.diff_array[...] = engine.gpu.xp.asarray(x)
    _, (array,) = arrays([diff(blob)])
    words = (fake_cublas.rounded(x, 7).view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(array.get(), words.transpose(0, 2, 3, 1))
    assert blob.diff_values.array is None  # no second copy is kept


def test_what_is_overwritten_channels_last_replaces_what_a_user_wrote(engine):
    blob = typed(engine, np.float32)
    blob.data[...] = 7
    _, (array,) = arrays([], [data(blob)])
    array[...] = 3
    np.testing.assert_array_equal(blob.data, 3)


def test_one_plain_blob_makes_all_arrays_of_a_layer_plain(engine):
    one, other = typed(engine, BF16), Blob(SHAPE, engine.xp)
    one.data[...] = 2
    is_last, found = arrays([data(one)], [data(other)])
    assert not is_last and [array.dtype for array in found] == [np.float32] * 2
    np.testing.assert_array_equal(found[0].get(), 2)


def test_values_follow_a_blob_into_its_next_home_and_out_of_it(engine):
    blob, x = typed(engine, np.float32), numbers()
    blob.data[...] = x
    blob.values.settle()
    blob.values.move_out(SHAPE, engine.xp)
    blob.values.move_in(ChannelsLast(engine, engine.gpu.xp.zeros(last_shape(SHAPE), BF16)), shared=False)
    np.testing.assert_array_equal(blob.data, fake_cublas.rounded(x, 7))
    blob.values.move_out(SHAPE, engine.xp)
    assert not arrays([data(blob)])[0]
    np.testing.assert_array_equal(blob.data, fake_cublas.rounded(x, 7))


def layer(name, kind, bottoms, tops, param=""):
    named = " ".join([f'bottom: "{one}"' for one in bottoms.split()] + [f'top: "{one}"' for one in tops.split()])
    return f'layer {{ name: "{name}" type: "{kind}" {named} {param} }}\n'


def convolution(name, bottom, top, fields):
    return layer(name, "Convolution", bottom, top, f"convolution_param {{ {fields} }}")


CONVOLUTIONS = (
    convolution("one", "x0", "a", "num_output: 9 kernel_size: 3 pad: 1")
    + convolution("two", "a", "b", "num_output: 16 kernel_size: 1 group: 1 bias_term: false")
    + layer("three", "Deconvolution", "b", "c", "convolution_param { num_output: 8 kernel_size: 2 stride: 2 group: 4 }")
    + convolution("four", "c", "y", "num_output: 4 kernel_size: 3 stride: 2")
)


def between(layers, bottoms, top, outputs=16):
    """Return layers between convolutions: `bottoms` come out of convolutions of x0, `top` goes into one."""
    text = "".join(
        convolution(f"in{i}", "x0", name, f"num_output: {outputs} kernel_size: 3 pad: 1")
        for i, name in enumerate(bottoms.split())
    )
    return text + layers + convolution("out", top, "y", "num_output: 4 kernel_size: 1")


def pooling(fields, kernel=3):
    return layer("pool", "Pooling", "a", "p", f"pooling_param {{ kernel_size: {kernel} {fields} }}")


IMAGES = 2, 3, 7, 6
LAYERS = {
    "relu": between(layer("relu", "ReLU", "a", "b", "relu_param { negative_slope: 0.5 }"), "a", "b"),
    "relu in place": between(layer("relu", "ReLU", "a", "a"), "a", "a", outputs=5),
    "max": between(pooling("stride: 2"), "a", "p"),
    "max, odd channels, pad": between(pooling("pad: 1"), "a", "p", outputs=5),
    "max, pad": between(pooling("stride: 2 pad: 2"), "a", "p"),
    "max, side by side": between(pooling("stride: 2", 2), "a", "p"),
    "max, dense": between(pooling("stride: 1 pad: 1"), "a", "p"),
    "max, of 5": between(pooling("stride: 2 pad: 1", 5), "a", "p"),
    "mean": between(pooling("stride: 2 pool: AVE pad: 1"), "a", "p"),
    "mean, side by side": between(pooling("stride: 2 pool: AVE pad: 1", 2), "a", "p"),
    "mean, dense": between(pooling("stride: 1 pool: AVE pad: 2"), "a", "p"),
    "mean of all": between(
        layer("pool", "Pooling", "a", "p", "pooling_param { pool: AVE global_pooling: true }"), "a", "p", outputs=6
    ),
    "lrn": between(layer("lrn", "LRN", "a", "b", "lrn_param { local_size: 5 alpha: 0.5 }"), "a", "b", outputs=24),
    "lrn, two packs": between(
        layer("lrn", "LRN", "a", "b", "lrn_param { local_size: 5 alpha: 0.5 }"), "a", "b", outputs=48
    ),
    "lrn, odd channels": between(
        layer("lrn", "LRN", "a", "b", "lrn_param { local_size: 7 alpha: 0.5 beta: 0.5 k: 2 }"), "a", "b", outputs=13
    ),
    "lrn, wide": between(layer("lrn", "LRN", "a", "b", "lrn_param { local_size: 9 alpha: 0.5 }"), "a", "b", outputs=20),
    "concat": between(layer("join", "Concat", "a b c", "d"), "a b c", "d"),
    "concat of rows": between(layer("join", "Concat", "a b", "d", "concat_param { axis: 2 }"), "a b", "d", outputs=5),
    "slice": between(
        layer("cut", "Slice", "a", "b c", "slice_param { slice_point: 5 }")
        + layer("join", "Concat", "c b", "d"), "a", "d"
    ),
    "sum": between(layer("add", "Eltwise", "a b", "c", "eltwise_param { coeff: 1 coeff: -2 }"), "a b", "c"),
    "product": between(layer("add", "Eltwise", "a b", "c", "eltwise_param { operation: PROD }"), "a b", "c"),
    "maximum": between(layer("add", "Eltwise", "a b", "c", "eltwise_param { operation: MAX }"), "a b", "c", outputs=5),
    "split": between(
        layer("relu", "ReLU", "a", "b") + layer("pool", "Pooling", "a", "c", "pooling_param { kernel_size: 1 }")
        + layer("add", "Eltwise", "b c", "d"), "a", "d"
    ),
    "dropout": between(
        layer("pool", "Pooling", "a", "p", "pooling_param { global_pooling: true }")
        + layer("drop", "Dropout", "p", "p"), "a", "p", outputs=21,
    ),
    "inner product": convolution("one", "x0", "a", "num_output: 9 kernel_size: 3")
    + layer("ip", "InnerProduct", "a", "y", "inner_product_param { num_output: 6 }"),
    "two inner products": convolution("one", "x0", "a", "num_output: 9 kernel_size: 3")
    + convolution("two", "x0", "b", "num_output: 9 kernel_size: 3")
    + layer("ip1", "InnerProduct", "a", "y1", "inner_product_param { num_output: 6 }")
    + layer("ip2", "InnerProduct", "b", "y2", "inner_product_param { num_output: 6 }")
    + layer("add", "Eltwise", "y1 y2", "y"),
}  # fmt: skip
NETS = {"convolutions": (CONVOLUTIONS, (2, 3, 6, 5))} | {name: (net, IMAGES) for name, net in LAYERS.items()}
TOLERANCE = {"bf16": 8e-3, "tf32": 2e-5}  # a few roundings; the stand-in for cuDNN rounds nothing to TF32


def typed_net(layers, *shapes, numbers="bf16", **how):
    """Return the net on a stand-in for a GPU with cuDNN."""
    return build(layers, *shapes, engine="auto", gpu=gpu_with(), numbers=numbers, **how)


def typed_names(net):
    """Return the blobs whose values lie channels last."""
    return {name for name, blob in net.blobs.items() if blob.values.home is not None}


def computed(net, passes=2):
    """Run passes over small whole numbers, which bfloat16 has; return all that was computed, by name."""
    rng = np.random.default_rng(0)
    for blob in [net.blobs["x0"], *(blob for blobs in net.params.values() for blob in blobs)]:
        blob.data[...] = rng.integers(-1, 2, blob.shape)
    net.clear_param_diffs()
    for _ in range(passes):
        net.forward()
        net.blobs["y"].diff[...] = rng.integers(-2, 3, net.blobs["y"].shape)
        net.backward()
    found = {name: blob.data.copy() for name, blob in net.blobs.items()} | {"x0 diff": net.blobs["x0"].diff.copy()}
    for one, blobs in net.params.items():
        found |= {f"{one}[{i}] diff": blob.diff.copy() for i, blob in enumerate(blobs)}
    return found


@pytest.mark.parametrize("compute", TOLERANCE)
@pytest.mark.parametrize("name", NETS)
def test_nets_of_typed_blobs_have_the_references_numbers(name, compute):
    layers, *shapes = NETS[name]
    net = typed_net(layers, *shapes, numbers=compute)
    found = computed(net)
    assert typed_names(net) == {name for name in net.blobs if not name.startswith(("x0", "y"))}
    assert_alike(found, computed(build(layers, *shapes, engine="reference")), TOLERANCE[compute])


@pytest.mark.parametrize("compute", TOLERANCE)
def test_weights_that_the_device_has_changed_are_converted_anew(compute):
    nets = typed_net(CONVOLUTIONS, (2, 3, 6, 5), numbers=compute), build(CONVOLUTIONS, (2, 3, 6, 5), engine="reference")
    for net in nets:
        computed(net, passes=1)
        net.packed.data *= 2  # as an update does
        net.forward()
    found, expected = (net.blobs["y"].data for net in nets)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[compute] * np.abs(expected).max())


@pytest.mark.parametrize("compute", ["float32", *TOLERANCE])
@pytest.mark.parametrize("top", ["a", "b"], ids=["in place", "apart"])
def test_a_scale_learns_behind_a_frozen_convolution(top, compute):
    """Its bottom needs no gradient, and lies channels last but in float32."""
    frozen = "param { lr_mult: 0 } " * 2 + "convolution_param { num_output: 8 kernel_size: 3 }"
    text = layer("in", "Convolution", "x0", "a", frozen) + layer(
        "scale", "Scale", "a", top, "scale_param { bias_term: true }"
    )
    text += layer("out", "Convolution", top, "y", "loss_weight: 1 convolution_param { num_output: 4 kernel_size: 1 }")
    nets = (
        build(text, IMAGES, force_backward=False, engine="auto", gpu=gpu_with(), numbers=compute),
        build(text, IMAGES, force_backward=False, engine="reference"),
    )
    found, expected = ({name: values for name, values in computed(net).items() if "scale" in name} for net in nets)
    assert len(found) == 2
    assert_alike(found, expected, TOLERANCE.get(compute, 1e-6))


@pytest.mark.parametrize("compute", TOLERANCE)
def test_gradients_that_were_set_to_zero_are_overwritten(compute):
    net = typed_net(CONVOLUTIONS, (2, 3, 6, 5), numbers=compute)
    first, second = (computed(net, passes=1) for _ in range(2))
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


def conversions(net):
    """Return the kernels that convert layouts in a pass forward and backward."""
    found, launch = [], net.engine.launch

    def counting(file, kernel, *rest):
        if kernel.startswith(("turn", "to_bf16", "fold", "unfold")):
            found.append(kernel)
        launch(file, kernel, *rest)

    net.engine.launch = counting
    for i in range(len(net.layers)):
        net.forward_layer(i)
    for i in reversed(range(len(net.layers))):
        net.backward_layer(i)
    net.engine.launch = launch
    return found


MODEL = (
    convolution("one", "x0", "a", "num_output: 8 kernel_size: 3 bias_term: false")
    + layer("relu", "ReLU", "a", "a")
    + layer("lrn", "LRN", "a", "b")
    + layer("pool", "Pooling", "b", "c", "pooling_param { kernel_size: 2 }")
    + convolution("two", "c", "d", "num_output: 8 kernel_size: 1 bias_term: false")
    + convolution("three", "c", "e", "num_output: 8 kernel_size: 3 pad: 1 bias_term: false")
    + layer("join", "Concat", "d e", "f")
    + layer("pool2", "Pooling", "f", "g", "pooling_param { kernel_size: 2 pool: AVE }")
    + layer("ip", "InnerProduct", "g", "y", "inner_product_param { num_output: 6 }")
)


@pytest.mark.parametrize("compute", TOLERANCE)
def test_between_the_first_convolution_and_the_classifier_nothing_is_converted_but_weights(compute):
    loss = layer("loss", "Reduction", "y", "loss", "loss_weight: 1")
    net = typed_net(MODEL + loss, IMAGES, numbers=compute, force_backward=False)
    net.clear_param_diffs()
    conversions(net)
    of_weights, of_inner_product = 2 * 3, 2  # weights and their gradients; g and its gradient
    of_input = 1 if compute == "bf16" else 2  # folded, and kept so; converted again backward
    assert len(conversions(net)) == of_weights + of_input + of_inner_product
    assert typed_names(net) == {*net.blobs} - {"x0", "y", "loss"}


@pytest.mark.parametrize("name", ["googlenet", "resnet50"])
def test_all_pictures_of_a_large_net_but_its_input_are_typed(name):
    param = models.get(name).train_val(batch=1, data="dummy")
    net = scaffe.Net(param, scaffe.TRAIN, engine=engines.create(Compute(numbers="bf16", plan="fixed"), gpu_with()))
    typed = TypedBlobs(net.engine, net).choose()
    assert [name for name, blob in net.blobs.items() if len(blob.shape) == 4 and id(blob) not in typed] == ["data"]


def test_blobs_in_bfloat16_take_half_the_memory():
    low, full = (typed_net(MODEL, IMAGES, numbers=numbers) for numbers in ("bf16", "float32"))
    for net in (low, full):
        net.forward()
        net.backward()
    assert not typed_names(full)
    assert 0.5 <= low.engine.memory.nbytes / full.engine.memory.nbytes < 0.75  # small ones are aligned


def test_a_layer_without_kernels_for_typed_blobs_sees_plain_ones_and_so_do_its_neighbours():
    layers = between(layer("elu", "ELU", "a", "b") + layer("add", "Eltwise", "b c", "d"), "a c", "d")
    net = typed_net(layers, IMAGES)
    found = computed(net)
    assert typed_names(net) == set()
    assert_alike(found, computed(build(layers, IMAGES, engine="reference")), 2e-2)


def grouped_passes(net, passes):
    """Run passes over the engine's groups of layers, other numbers in each; return what each gave."""
    rng, found = np.random.default_rng(0), []
    for _ in range(passes):
        net.blobs["x0"].data[...] = rng.integers(-1, 2, net.blobs["x0"].shape)
        net.clear_param_diffs()
        net.engine.begin_pass()
        for group in net.engine.groups(net):
            net.engine.forward(net, group)
        for group in reversed(net.engine.groups(net)):
            net.engine.backward(net, group)
        found.append({name: blob.data.copy() for name, blob in net.blobs.items()} | {
            f"{one} {i}": blob.diff.copy() for one, blobs in net.params.items() for i, blob in enumerate(blobs)
        })  # fmt: skip
    return found


def test_recordings_over_typed_blobs_repeat_to_the_bit():
    loss = layer("square", "Power", "y", "z", "power_param { power: 2 }") + layer(
        "loss", "Reduction", "z", "loss", "loss_weight: 1"
    )
    nets = [typed_net(MODEL + loss, IMAGES, graphs=graphs) for graphs in ("auto", "off")]
    repeated, launched = (grouped_passes(net, 6) for net in nets)
    assert nets[0].engine.graphs._recordings and nets[1].engine.graphs is None
    for one, other in zip(repeated, launched, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], err_msg=name)
