"""BN by oneDNN against the reference form: both forks', both phases, plain and blocked, in place and apart."""

import numpy as np
import pytest
from both_engines import assert_alike, build, is_fast, needs_onednn, run

import scaffe

pytestmark = needs_onednn
FIELDS = [
    "scale_filler { value: 1 }",
    "scale_filler { value: 1 } bn_mode: INFERENCE",
    "slope_filler { value: 1 } momentum: 0.75",
    "slope_filler { value: 1 } frozen: true",
]
CONVOLUTION = (  # a bias in front of a normalisation has no gradient but rounding
    'layer { name: "c" type: "Convolution" bottom: "x0" top: "c" '
    "convolution_param { num_output: 16 kernel_size: 1 bias_term: false } }"
)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("phase", [scaffe.TRAIN, scaffe.TEST])
@pytest.mark.parametrize("fields", FIELDS)
def test_the_form_of_onednn_agrees(fields, phase, blocked, in_place):
    bottom = "c" if blocked else "x0"
    top = bottom if in_place else "y"
    text = (CONVOLUTION if blocked else "") + (
        f'layer {{ name: "it" type: "BN" bottom: "{bottom}" top: "{top}" bn_param {{ {fields} }} }}'
    )
    nets = [
        build(text, (3, 16 if blocked else 5, 4, 6), engine=engine, phase=phase) for engine in ("onednn", "reference")
    ]
    for net in nets:
        for variance in net.params["it"][3:]:
            variance.data[...] = 0.5 + np.abs(variance.data)
    assert_alike(*map(run, nets))
    assert is_fast(nets[0], "it")
    for one, other in zip(*(net.params["it"] for net in nets), strict=True):
        np.testing.assert_allclose(one.data, other.data, rtol=1e-5, atol=1e-6)
