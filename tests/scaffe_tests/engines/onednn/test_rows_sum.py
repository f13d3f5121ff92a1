"""RowsSum has a convolution's gradient of the bottom; convolutions whose channels fill no vectors take it."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from both_engines import AVX2, assert_engines_agree, needs_onednn, uses

from scaffe.blob import Blob
from scaffe.engines.onednn import rows_sum
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.primitives import Memory, Onednn, reorder
from scaffe.engines.onednn.rows_sum import RowsSum
from scaffe.layers.im2col import SlidingWindow

pytestmark = needs_onednn


def last(engine: Onednn, values: np.ndarray) -> Memory:
    """Return values with their channels last."""
    found = Memory(engine, engine.channels_last(values.shape))
    reorder(Memory(engine, engine.plain(values.shape), values), found).run()
    return found


def made(engine: Onednn, window: SlidingWindow, channels: int, outputs: int, images: int = 3) -> tuple[RowsSum, Blob]:
    """Return the sum for a layer, and the layer's weights."""
    weights = Blob((outputs, channels, *window.kernel))
    layer: Any = SimpleNamespace(window=window, blobs=[weights], context=SimpleNamespace(engine=engine, forms=None))
    return RowsSum(engine, (images, channels, *window.size), (images, outputs, *window.out), layer), weights


def values_of(engine: Onednn, memory: Memory) -> np.ndarray:
    found = np.full(memory.desc.shape, np.nan, np.float32)
    memory.store(found)
    return found


@pytest.mark.parametrize(
    ("kernel", "across"), [((5, 5), 1), ((2, 4), 2), ((1, 5), 1), ((3, 4), 5), ((11, 4), 1)], ids=str
)
def test_gradients_are_a_convolutions(kernel: tuple[int, int], across: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers: the sums are exact. With wide steps the last columns of the bottom get nothing."""
    monkeypatch.setattr(rows_sum, "FEWEST", 1)
    engine, rng = Onednn(1), np.random.default_rng(0)
    window = SlidingWindow((11, 10), kernel, (1, across), (0, 0), (1, 1))
    sums, blob = made(engine, window, 20, 19)
    rows, columns = window.out
    dy = rng.integers(-3, 4, (3, 19, rows, columns)).astype(np.float32)
    blob.array[...] = rng.integers(-3, 4, blob.shape)
    expected = np.zeros((3, 20, *window.size), np.float32)
    for i, j in np.ndindex(kernel):
        under = expected[:, :, i : i + rows, j : j + across * columns : across][..., :columns]
        under += np.einsum("nfpq,fc->ncpq", dy, blob.array[:, :, i, j])
    top = last(engine, dy)
    for factor in (1, 2):
        np.testing.assert_array_equal(values_of(engine, sums.of(top, blob.values)), factor * expected)
        blob.array[...] *= 2
    other = last(engine, 2 * dy)  # in other memory
    np.testing.assert_array_equal(values_of(engine, sums.of(other, blob.values)), 8 * expected)
    view: Any = SimpleNamespace(buffer=dy.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2))  # a user's array
    np.testing.assert_array_equal(values_of(engine, sums.of(view, blob.values)), 4 * expected)


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "pad", "dilation"),
    [
        (32, 20, 5, 1, 0, 1),  # whole vectors of channels
        (20, 64, 5, 1, 0, 1),  # and of filters
        (3, 20, 5, 1, 0, 1),  # short rows
        (20, 20, 4, 1, 0, 1),  # few rows
        (20, 20, 5, 2, 0, 1),  # windows that pass over rows
        (20, 20, 5, 1, 2, 1),  # padding
        (20, 20, 5, 1, 0, 2),  # windows with holes
    ],
)
def test_others_stay_with_the_library(
    channels: int, outputs: int, kernel: int, stride: int, pad: int, dilation: int
) -> None:
    window = SlidingWindow((12, 12), (kernel,) * 2, (stride,) * 2, (pad,) * 2, (dilation,) * 2)
    with pytest.raises(NoFastForm):
        made(Onednn(1), window, channels, outputs)


def test_rows_of_much_memory_are_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    window = SlidingWindow((12, 9), (5, 5), (1, 1), (0, 0), (1, 1))
    most = 4 * 3 * 12 * 5 * 100  # bytes of 3 images, 12 rows of the bottom, 5 columns of the top, 5 x 20 numbers
    for more in (0, -1):
        monkeypatch.setattr(rows_sum, "MOST", most + more)
        with pytest.raises(NoFastForm) if more else nullcontext():
            made(Onednn(1), window, 20, 50)


@pytest.mark.parametrize("frozen", [False, True], ids=["learning", "frozen"])
@pytest.mark.parametrize("bottoms", [1, 2])
def test_convolutions_take_it(bottoms: int, frozen: bool) -> None:
    """Also those whose weights do not learn, and each pair of a bottom and a top."""
    if not uses(AVX2):
        pytest.skip("channels last have no fast convolution below AVX2")
    names = "".join(f' bottom: "x{k}" top: "y{k}"' for k in range(bottoms))
    learning = "param { lr_mult: 0 } param { lr_mult: 0 }" if frozen else ""
    text = f'layer {{ name: "it" type: "Convolution"{names} {learning}'
    text += " convolution_param { num_output: 50 kernel_size: 5 } }"
    net = assert_engines_agree(text, *[(2, 20, 12, 9)] * bottoms, passes=2)
    primitives: Any = net.layer_dict["it"]
    assert all(pair.rows_sum and pair.run_data is None for pair in primitives._primitives.pairs)
