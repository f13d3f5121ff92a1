"""ColumnProduct has a convolution's gradient of the weights; convolutions whose channels fill no vectors take it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from both_engines import AVX2, AVX512, assert_engines_agree, build, needs_onednn, run, uses

from scaffe.blob import Blob
from scaffe.engines.onednn import column_product
from scaffe.engines.onednn.column_product import ColumnProduct
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.primitives import Memory, Onednn, reorder
from scaffe.layers.im2col import SlidingWindow

pytestmark = needs_onednn
CONVOLUTION = "convolution_param { num_output: 20 kernel_size: 5 }"


def last(engine: Onednn, values: np.ndarray) -> Memory:
    """Return values with their channels last."""
    found = Memory(engine, engine.channels_last(values.shape))
    reorder(Memory(engine, engine.plain(values.shape), values), found).run()
    return found


@pytest.mark.parametrize("images", [1, 3, 5], ids="{} images a slice".format)
@pytest.mark.parametrize(
    ("kernel", "stride", "pad"),
    [((5, 5), (1, 1), (0, 0)), ((2, 4), (3, 2), (0, 0)), ((1, 5), (1, 2), (0, 0)), ((3, 4), (2, 1), (1, 2))],
)
def test_gradients_are_a_convolutions(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    images: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With padding as well, of weights that outweigh the rest."""
    engine, rng = Onednn(1), np.random.default_rng(0)
    monkeypatch.setattr(column_product, "takes_columns", lambda *_: any(pad))
    monkeypatch.setattr(column_product, "outweighs", lambda *_: True)
    monkeypatch.setattr(column_product, "PIXELS", 1)
    window = SlidingWindow((11, 9), kernel, stride, pad, (1, 1))
    (rows, columns), blob = window.out, Blob((19, 20, *kernel))
    x = rng.integers(-3, 4, (5, 20, 11, 9)).astype(np.float32)  # whole numbers: the sums are exact
    dy = rng.integers(-3, 4, (5, 19, rows, columns)).astype(np.float32)
    bias = Memory(engine, engine.plain((19,)))
    monkeypatch.setattr(column_product, "SLICE", images * 4 * rows * columns * 20 * kernel[0] * kernel[1])
    product = ColumnProduct(engine, x.shape, dy.shape, window, bias)
    assert product.count == images
    expected = np.zeros(blob.shape)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pad, pad, strict=True)])
    for i, j in np.ndindex(kernel):
        under = padded[:, :, i : i + stride[0] * rows : stride[0], j : j + stride[1] * columns : stride[1]]
        expected[:, :, i, j] = np.einsum("nfpq,ncpq->fc", dy, under[:, :, :rows, :columns])
    bottom, top = last(engine, x), last(engine, dy)
    for passes in (1, 2):
        product.add(bottom, top, blob)
        np.testing.assert_array_equal(blob.diff, passes * expected)
        np.testing.assert_array_equal(bias.buffer, dy.sum(axis=(0, 2, 3)))
    product.add(last(engine, 2 * x), last(engine, dy), blob)  # in other memory
    views = [SimpleNamespace(buffer=one.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)) for one in (x, 2 * dy)]
    product.add(*views, blob)  # a user's arrays
    np.testing.assert_array_equal(blob.diff, 6 * expected)
    np.testing.assert_array_equal(bias.buffer, 2 * dy.sum(axis=(0, 2, 3)))


def test_slices_have_pixels_enough_to_pass_over_the_gradient() -> None:
    window = SlidingWindow((12, 12), (5, 5), (1, 1), (0, 0), (1, 1))  # 64 pixels of an image
    for wide, count in ((20, 8), (1001, 2)):  # numbers of a MB; images of 128 pixels
        assert ColumnProduct(Onednn(1), (9, wide, 12, 12), (9, 50, *window.out), window, None).count == count


@pytest.mark.parametrize("frozen", [0, 1], ids=["weights", "bias"])
def test_a_convolutions_frozen_parameter_gets_no_gradient(frozen: int) -> None:
    mult = " ".join(f"param {{ lr_mult: {int(i != frozen)} }}" for i in range(2))
    layer = f'layer {{ name: "c" type: "Convolution" bottom: "x0" top: "y" loss_weight: 1 {mult} {CONVOLUTION} }}'
    found = run(net := build(layer, (4, 20, 12, 12), force_backward=False))
    assert [found[f"c[{i}] diff"].any() for i in range(2)] == [i != frozen for i in range(2)]
    if frozen and uses(AVX2):  # narrower processors have no fast convolution with channels last
        (pair,) = net.layer_dict["c"]._primitives.pairs
        assert isinstance(pair.product, ColumnProduct)


@pytest.mark.parametrize(
    ("size", "spread", "takes"),
    [(4, "", True), (40, "", False), (4, "dilation: 2", False)],
    ids=["outweighing", "outweighed", "dilated"],
)
def test_weights_that_outweigh_bottom_and_top_take_it_without_avx512(size: int, spread: str, takes: bool) -> None:
    layer = 'layer { name: "c" type: "Convolution" bottom: "x0" top: "y" convolution_param {'
    net = assert_engines_agree(
        f"{layer} num_output: 192 kernel_size: 3 pad: 1 {spread} }} }}", (2, 192, size, size), passes=2
    )
    (pair,) = net.layer_dict["c"]._primitives.pairs
    assert isinstance(pair.product, ColumnProduct) == (takes and not uses(AVX512))


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "pad", "dilation"),
    [
        (32, 20, 5, 0, 1),  # whole vectors of channels
        (20, 64, 5, 0, 1),  # and of filters
        (3, 20, 5, 0, 1),  # short rows
        (20, 20, 5, 2, 1),  # padding
        (20, 20, 5, 0, 2),  # windows with holes
    ],
)
def test_others_stay_with_the_library(channels: int, outputs: int, kernel: int, pad: int, dilation: int) -> None:
    window = SlidingWindow((12, 12), (kernel,) * 2, (1, 1), (pad,) * 2, (dilation,) * 2)
    with pytest.raises(NoFastForm):
        ColumnProduct(Onednn(1), (2, channels, 12, 12), (2, outputs, *window.out), window, None)
