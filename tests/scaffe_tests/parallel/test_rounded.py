"""What is broadcast in place of the parameters: which of them are rounded, and where each range lies."""

import numpy as np
import pytest
from both_engines import build, needs_bf16

from collectives.codecs import Bfloat16Codec
from scaffe.parallel.rounded import LINE, RoundedParameters, rounded_parameters

pytestmark = pytest.mark.mpi_skip
NORMALISED = """
layer { name: "conv" type: "Convolution" bottom: "x0" top: "a" convolution_param { num_output: 5 kernel_size: 3 } }
layer { name: "norm" type: "BatchNorm" bottom: "a" top: "b" }
layer { name: "scale" type: "Scale" bottom: "b" top: "c" scale_param { bias_term: true } }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "y" inner_product_param { num_output: 7 } }
"""


def shared(second):
    """Return two inner products with the same weights."""
    names = zip(("one", "two"), ("x0", "a"), ("a", "y"), ("", second), strict=True)
    return "".join(
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top}" param {{ name: "w" }} '
        f"inner_product_param {{ num_output: 48 bias_term: false {fields} }} }}"
        for name, bottom, top, fields in names
    )


@needs_bf16
@pytest.mark.parametrize(("second", "expected"), [("", {0}), ("transpose: true", set())])
def test_weights_are_rounded_if_all_layers_that_read_them_round_them(second, expected):
    net = build(shared(second), (2, 48), numbers="bf16")
    assert rounded_parameters(net) == expected


@needs_bf16
def test_weights_that_numpy_multiplies_are_not_rounded():
    """A convolution over some of the axes behind the first two has no form in oneDNN."""
    fields = "convolution_param { num_output: 5 kernel_size: 3 axis: 2 }"
    net = build(
        f'layer {{ name: "conv" type: "Convolution" bottom: "x0" top: "y" {fields} }}', (2, 3, 4, 6, 6), numbers="bf16"
    )
    assert rounded_parameters(net) == set()


@needs_bf16
def test_consecutive_ranges_follow_one_another_where_statistics_lie_behind():
    """Statistics follow all learned parameters in memory, though their layer is between others."""
    net = build(NORMALISED, (2, 3, 6, 6), numbers="bf16")
    packed, rounded = net.packed, RoundedParameters.of(net)
    starts = sorted(one.start for one in packed.slices)
    parts = [slice(a, b) for a, b in zip(starts, [*starts[1:], packed.flat.size], strict=True)]
    places = [rounded.part(part) for part in parts]
    gaps = [after.start - before.stop for before, after in zip(places[:-1], places[1:], strict=True)]
    assert all(0 <= gap < LINE for gap in gaps)  # each starts on a line
    whole = rounded.part(slice(packed.learned.start, packed.learned.stop))
    assert whole.start == 0 and 0 <= rounded.part(packed.statistics).start - whole.stop < LINE


@pytest.mark.parametrize("cuts", [(), (16, 32, 112)])
def test_ranges_go_there_and_back_on_any_processor(cuts):
    """Lengths are odd; values lie halfway between two of bfloat16, or are none."""
    net = build(NORMALISED, (2, 3, 6, 6))
    packed, chosen = net.packed, {0, 4}
    rounded = RoundedParameters(packed, chosen)
    values = np.random.default_rng(5).standard_normal(packed.flat.size).astype(np.float32)
    values[:6] = np.inf, -np.inf, np.nan, -0.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8
    packed.flat[...] = values
    ends = [0, *cuts, packed.flat.size]
    parts = [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]
    for work in (rounded.pack, rounded.unpack):
        for part in parts:
            work(part)
        if work == rounded.pack:
            packed.flat[...] = 0
    even = values.view(np.uint32).astype(np.uint64)
    even = ((even + 0x7FFF + (even >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    for i, part in enumerate(packed.slices):
        np.testing.assert_array_equal(packed.flat[part], (even if i in chosen else values)[part])


def test_a_value_that_is_no_number_stays_none():
    """Rounding would make infinity, or a number, of these bits."""
    values, words = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32), np.zeros(6, np.uint8)
    Bfloat16Codec().encode(values, words)
    back = np.zeros(3, np.float32)
    Bfloat16Codec().decode(words, back)
    assert np.isnan(back).all()
