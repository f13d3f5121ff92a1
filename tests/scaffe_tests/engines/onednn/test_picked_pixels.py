"""Filters of one pixel with strides compute on picked pixels, in float32, where their steps divide the images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both_engines import assert_engines_agree, build, needs_onednn, run

from scaffe.engines.onednn.picked_pixels import over_picked
from scaffe.layers.im2col import SlidingWindow

pytestmark = needs_onednn


def convolution(outputs: int, fields: str, bottom: str = "x0", top: str = "y", name: str = "it") -> str:
    """Return a convolution with filters of one pixel."""
    ends = f'bottom: "{bottom}" top: "{top}"'
    param = f"convolution_param {{ num_output: {outputs} kernel_size: 1 {fields} }}"
    return f'layer {{ name: "{name}" type: "Convolution" {ends} {param} }}'


@pytest.mark.parametrize("before", [True, False], ids=["in a layout of oneDNN", "plain"])
@pytest.mark.parametrize(
    ("channels", "outputs", "size", "stride"),
    [(16, 32, (10, 8), 2), (20, 24, (6, 9), 3), (3, 16, (8, 8), 2), (1, 4, (4, 6), 2), (64, 64, (2, 2), 2)],
    ids=str,
)
def test_engines_agree(channels: int, outputs: int, size: tuple[int, int], stride: int, before: bool) -> None:
    text = convolution(channels, "", top="b", name="b") if before else ""
    text += convolution(outputs, f"stride: {stride}", "b" if before else "x0")
    layer: Any = assert_engines_agree(text, (3, channels, *size), passes=2).layer_dict["it"]
    assert all(pair.picks for pair in layer._primitives.pairs)


def test_strides_of_two_sizes_and_two_bottoms() -> None:
    text = 'layer { name: "it" type: "Convolution" bottom: "x0" top: "y0" bottom: "x1" top: "y1" convolution_param {'
    text += " num_output: 16 kernel_size: 1 stride_h: 3 stride_w: 1 } }"
    assert_engines_agree(text, *[(2, 16, 6, 5)] * 2, passes=2)


def test_values_that_change_between_passes_are_picked_anew() -> None:
    net = build(convolution(16, "stride: 2"), (2, 16, 4, 4))
    first = run(net)
    net.blobs["x0"].data[...] *= 2
    second = run(net)
    np.testing.assert_allclose(second["it[0] diff"], 2 * first["it[0] diff"], rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"),
    [
        ((8, 8), (1, 1), (1, 1), (0, 0)),  # passes over none
        ((8, 8), (1, 2), (2, 2), (0, 0)),
        ((8, 8), (1, 1), (2, 2), (1, 0)),
        ((8, 7), (1, 1), (2, 2), (0, 0)),  # steps that do not divide the images
        ((8,), (1,), (2,), (0,)),
    ],
)
def test_other_windows_stay(
    size: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...]
) -> None:
    window = SlidingWindow(size, kernel, stride, pad, (1,) * len(size))
    assert over_picked(window) == window


def test_groups_stay_with_the_library() -> None:
    layer: Any = assert_engines_agree(convolution(16, "stride: 2 group: 2"), (2, 16, 4, 4)).layer_dict["it"]
    assert not any(pair.picks for pair in layer._primitives.pairs)
