"""Blobs that lie channels last, in bfloat16 or float32: what users and layers see of them, and which blobs do."""

import fake_cublas
import numpy as np
import pytest
from both_engines import assert_alike, build, run
from cudnn_gpu import gpu_with
from strict_arrays import a_gpu

from scaffe.blob import Blob
from scaffe.engines.cuda import Cuda
from scaffe.engines.cuda.forms import ChannelsLast, arrays, data, diff, last_shape
from scaffe.engines.cuda.layouts import BF16

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


def pooling(fields):
    return layer("pool", "Pooling", "a", "p", f"pooling_param {{ kernel_size: 3 {fields} }}")


IMAGES = 2, 3, 7, 6
LAYERS = {
    "relu": between(layer("relu", "ReLU", "a", "b", "relu_param { negative_slope: 0.5 }"), "a", "b"),
    "relu in place": between(layer("relu", "ReLU", "a", "a"), "a", "a", outputs=5),
    "max": between(pooling("stride: 2"), "a", "p"),
    "max, odd channels, pad": between(pooling("pad: 1"), "a", "p", outputs=5),
    "mean": between(pooling("stride: 2 pool: AVE pad: 1"), "a", "p"),
    "mean of all": between(
        layer("pool", "Pooling", "a", "p", "pooling_param { pool: AVE global_pooling: true }"), "a", "p", outputs=6
    ),
    "lrn": between(layer("lrn", "LRN", "a", "b", "lrn_param { local_size: 5 alpha: 0.5 }"), "a", "b", outputs=24),
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
        layer("pool", "Pooling", "a", "p", "pooling_param { global_pooling: true }") + layer("drop", "Dropout", "p", "p"),
        "a", "p", outputs=21,
    ),
}  # fmt: skip
NETS = {"convolutions": (CONVOLUTIONS, (2, 3, 6, 5))} | {name: (net, IMAGES) for name, net in LAYERS.items()}
TOLERANCE = {"bf16": 2e-2, "tf32": 2e-5}  # the stand-in for cuDNN rounds nothing to TF32


def typed_net(layers, *shapes, numbers="bf16", **how):
    """Return the net on a stand-in for a GPU with cuDNN."""
    return build(layers, *shapes, engine="auto", gpu=gpu_with(), numbers=numbers, **how)


def typed_names(net):
    """Return the blobs whose values lie channels last."""
    return {name for name, blob in net.blobs.items() if blob.values.home is not None}


class Conversions:
    """Counts the conversions of layouts that an engine launches, by the layer that computes."""

    def __init__(self, net):
        self.net, self.found = net, []
        launch = net.engine.launch

        def counting(file, kernel, *rest):
            if kernel.startswith("turn"):
                self.found.append(kernel)
            launch(file, kernel, *rest)

        net.engine.launch = counting


@pytest.mark.parametrize("compute", TOLERANCE)
@pytest.mark.parametrize("name", NETS)
def test_nets_of_typed_blobs_have_the_references_numbers(name, compute):
    layers, *shapes = NETS[name]
    net = typed_net(layers, *shapes, numbers=compute)
    found = run(net, 2)
    assert typed_names(net) == {name for name in net.blobs if not name.startswith(("x0", "y"))}
    assert_alike(found, run(build(layers, *shapes, engine="reference"), 2), TOLERANCE[compute])
