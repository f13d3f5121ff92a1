"""The layouts that a convolution takes without timing: no pass multiplies mostly padding; neighbours keep theirs."""

from __future__ import annotations

from math import prod

import pytest
from both_engines import AVX2, AVX512, build, needs_onednn, uses

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.convolution_layouts import BLOCKED, CHANNELS_LAST, GRADIENT, ConvolutionLayouts

pytestmark = needs_onednn


def layouts(channels: int, outputs: int, kernel: int) -> ConvolutionLayouts:
    """Return the layouts of a convolution of two images of 12 x 12 pixels."""
    fields = f"num_output: {outputs} kernel_size: {kernel}"
    text = f'layer {{ name: "c" type: "Convolution" bottom: "x0" top: "y" convolution_param {{ {fields} }} }}'
    net = build(text, (2, channels, 12, 12))
    return ConvolutionLayouts(net.layers[-1], net.blobs["x0"], net.blobs["y"])


@pytest.mark.parametrize(("channels", "outputs"), [(1, 20), (3, 32), (20, 50), (24, 64), (50, 100), (16, 16)])
def test_no_pass_multiplies_mostly_padding(channels: int, outputs: int) -> None:
    found = layouts(channels, outputs, 5)
    passes = found.take(found.fixed())
    for described, top in ((passes.forward, lib.QUERY_DST), (passes.weights, lib.QUERY_DIFF_DST)):
        sizes = [described.desc(lib.QUERY_SRC, found.src).nbytes, described.desc(top, found.dst).nbytes]
        assert prod(sizes) <= 2 * prod(4 * prod(shape) for shape in (found.src, found.dst))


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "choice"),
    [
        (20, 50, 5, CHANNELS_LAST),
        (32, 64, 5, BLOCKED),
        (24, 64, 5, BLOCKED),  # what joins its top with others has blocks
        (512, 24, 1, BLOCKED),  # its bottom is large, and others read it in blocks
    ],
)
def test_blocks_are_left_where_the_bottom_would_be_padded(
    channels: int, outputs: int, kernel: int, choice: str
) -> None:
    if not uses(AVX2):
        pytest.skip("channels last have no fast convolution below AVX2")
    assert layouts(channels, outputs, kernel).fixed() == choice


@pytest.mark.parametrize(
    ("outputs", "choice"),
    [(24, f"{BLOCKED}{GRADIENT}{CHANNELS_LAST}"), (20, CHANNELS_LAST)],
    ids=["the gradient alone", "all passes, where blocks pad the top too"],
)
def test_pictures_of_one_channel_are_taken_with_channels_last_where_blocks_pad_them(outputs: int, choice: str) -> None:
    if uses(AVX512) or not uses(AVX2):
        pytest.skip("AVX-512 has a form for pictures, and below AVX2 there are blocks alone")
    assert layouts(1, outputs, 5).fixed() == choice


@pytest.mark.parametrize(
    ("channels", "kernel", "outweighs"),
    [(256, 3, True), (32, 3, False), (256, 1, False)],
    ids=["more than pictures", "less than pictures", "of single pixels"],
)
def test_a_gradient_larger_than_bottom_and_top_is_taken_with_channels_last(
    channels: int, kernel: int, outweighs: bool
) -> None:
    choice = f"{BLOCKED}{GRADIENT}{CHANNELS_LAST}" if outweighs else BLOCKED
    assert layouts(channels, channels, kernel).fixed() == choice
