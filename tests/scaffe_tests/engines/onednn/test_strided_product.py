"""StridedProduct has a convolution's gradient of the weights, also where no layer of this processor takes it."""

from __future__ import annotations

import numpy as np
import pytest
from both_engines import needs_bf16

from scaffe.blob import Blob
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.primitives import Memory, Onednn, reorder
from scaffe.engines.onednn.strided_product import StridedProduct
from scaffe.layers.im2col import SlidingWindow

pytestmark = needs_bf16


def in_bf16(engine: Onednn, values: np.ndarray) -> Memory:
    """Return values with their channels last."""
    found = Memory(engine, engine.channels_last(values.shape, engine.kind))
    reorder(Memory(engine, engine.plain(values.shape), values), found).run()
    return found


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [((11, 11), 4, (0, 0)), ((7, 7), 2, (3, 3)), ((2, 5), 3, (0, 2))])
def test_the_gradient_of_the_weights_is_a_convolutions(
    kernel: tuple[int, int], stride: int, pad: tuple[int, int], channels: int
) -> None:
    engine, rng = Onednn(1, "bf16"), np.random.default_rng(0)
    window = SlidingWindow((19, 16), kernel, (stride, stride), pad, (1, 1))
    (rows, columns), blob = window.out, Blob((16, channels, *kernel))
    x = rng.integers(-3, 4, (2, channels, 19, 16)).astype(np.float32)  # whole numbers: the sums are exact
    dy = rng.integers(-3, 4, (2, 16, rows, columns)).astype(np.float32)
    try:
        product = StridedProduct(engine, x.shape, dy.shape, window, None)
    except NoFastForm as error:
        pytest.skip(str(error))
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pad)))
    expected = np.zeros(blob.shape)
    for i, j in np.ndindex(kernel):
        under = padded[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]
        expected[:, :, i, j] = np.einsum("nfpq,ncpq->fc", dy, under[:, :, :rows, :columns])
    for passes in (1, 2):
        product.add(in_bf16(engine, x), in_bf16(engine, dy), blob)
        np.testing.assert_array_equal(blob.diff, passes * expected)
