"""DepthwiseConvolution and ConvolutionDepthwise against loops over the windows, in each engine."""

import numpy as np
import pytest
from both_engines import assert_engines_agree, is_fast, needs_onednn
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError
from scaffe.layers.depthwise_convolution import NAMES

FIELDS = "num_output: 3 kernel_size: 3 stride: 2 pad: 1"


def text(kind, fields=FIELDS):
    return f'type: "{kind}" convolution_param {{ {fields} }}'


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("group", ["", "group: 3"])
def test_each_channel_has_a_filter_of_its_own(kind, group):
    x = distinct(2, 3, 5, 5)
    it = OneLayer(text(kind, f"{FIELDS} {group}"), x)
    weights, bias = (blob.array for blob in it.layer.blobs)
    assert weights.shape == (3, 1, 3, 3)
    weights[...], bias[...] = distinct(3, 1, 3, 3, seed=1), [1, 2, 3]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.empty((2, 3, 3, 3))
    for i, j in np.ndindex(3, 3):
        window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
        expected[:, :, i, j] = (window * weights[:, 0]).sum((2, 3)) + bias
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-12)
    check_gradients(text(kind), x)


@needs_onednn
@pytest.mark.parametrize("kind", NAMES)
def test_the_form_of_onednn_is_a_convolutions(kind):
    fields = "num_output: 16 kernel_size: 3 pad: 1"
    layer = f'layer {{ name: "it" bottom: "x0" top: "y" {text(kind, fields)} }}'
    assert is_fast(assert_engines_agree(layer, (2, 16, 6, 6)), "it")


@pytest.mark.parametrize("fields", ["num_output: 6", "num_output: 3 group: 1"])
def test_another_number_of_outputs_or_groups_is_refused(fields):
    with pytest.raises(ShapeError, match="layer 'it'.*for 3 channels; give num_output: 3, and no group"):
        OneLayer(text(NAMES[0], f"{fields} kernel_size: 1"), distinct(1, 3, 2, 2))
