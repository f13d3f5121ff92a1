"""Updates by oneDNN: the same as numpy's, and as it lies in the blobs."""

import numpy as np
import pytest
from both_engines import needs_onednn

from scaffe import solvers
from scaffe.blob import Blob
from scaffe.engines.onednn.primitives import Onednn
from scaffe.engines.onednn.sgd import OnednnSGD
from scaffe.packed import PackedParameters, ParameterBlob
from scaffe.proto import SolverParameter

pytestmark = needs_onednn
SHAPES = [(3, OnednnSGD.block), (7,), (OnednnSGD.block + 5,), (2, 50)]


def rule_of(engine, **fields):
    parameters = [
        ParameterBlob("layer", i, Blob(shape), lr_mult=1 + i % 2, decay_mult=1 - i / 4)
        for i, shape in enumerate(SHAPES)
    ]
    parameters[3].sharers.append(Blob(SHAPES[3]))
    packed = PackedParameters(parameters)
    packed.data[...] = np.random.default_rng(1).standard_normal(packed.data.size)
    param = SolverParameter(type="SGD", momentum=0.9, weight_decay=0.01, **fields)
    return solvers.create(param, packed, engine)


def update(rule, rate, iteration, cut):
    """Update all parameters, the first of them in two parts, the second first, unless `cut` is None."""
    others = range(len(SHAPES))
    if cut is not None:
        for part in (slice(cut, rule.packed.slices[0].stop), slice(0, cut)):
            rule.update([0], rate, iteration, part)
        others = others[1:]
    rule.update(others, rate, iteration)


@pytest.mark.parametrize("cut", [None, 2 * OnednnSGD.block, 1000], ids=["whole", "cut between blocks", "and in one"])
@pytest.mark.parametrize("fields", [{}, {"iter_size": 3}, {"regularization_type": "L1"}, {"clip_gradients": 5}])
def test_updates_are_numpys(fields, cut):
    rules = rule_of(Onednn(1), **fields), rule_of(None, **fields)
    assert isinstance(rules[0], OnednnSGD) and not isinstance(rules[1], OnednnSGD)
    for iteration in range(3):
        for rule in rules:
            rng = np.random.default_rng(iteration)
            rule.packed.clear_diffs()
            for parameter in rule.packed.parameters:
                parameter.blob.diff[...] = rng.standard_normal(parameter.blob.shape)
            rule.clip()
            update(rule, 0.1 / (1 + iteration), iteration, cut)
        ours, theirs = rules
        np.testing.assert_allclose(ours.packed.data, theirs.packed.data, atol=2e-6)
        np.testing.assert_allclose(ours.history[0], theirs.history[0], atol=2e-6)
        for mine, reference in zip(ours.packed.parameters, theirs.packed.parameters, strict=True):
            np.testing.assert_allclose(mine.blob.diff, reference.blob.diff, atol=2e-6, err_msg="the update")
