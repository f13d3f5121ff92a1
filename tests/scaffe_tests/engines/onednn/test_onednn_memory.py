"""Gradients of blobs share memory where they need not be kept, and all numbers stay the same."""

import numpy as np
import pytest
from both_engines import needs_onednn

import scaffe
from scaffe import models
from scaffe.compute import Compute
from scaffe.errors import ScaffeError

pytestmark = needs_onednn


def trained(name, keep):
    """Return a net of the zoo after two passes from the same numbers, and the elements of its gradients' memory."""
    net = scaffe.Net(models.get(name).train_val(batch=1, data="input"), scaffe.TRAIN, compute=Compute("onednn"))
    net.keep_diffs = keep
    rng = np.random.default_rng(1)
    net.packed.data[...] = rng.standard_normal(net.packed.data.size) * 0.05
    for _ in range(2):
        net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
        net.clear_param_diffs()
        net.forward()
        net.backward()
    return net


@pytest.mark.parametrize("name", ["resnet50", "googlenet"])
def test_parameters_get_the_same_gradients_from_less_memory(name):
    kept, shared = trained(name, True), trained(name, False)
    np.testing.assert_array_equal(shared.packed.diff, kept.packed.diff)
    free = shared.context.engine.gradients.free
    assert sum(buffer.size for buffer in free) < 0.5 * sum(blob.count for blob in kept.blobs.values())


def test_a_gradient_that_was_not_kept_is_an_error_and_no_number():
    net = trained("cifar10_full", False)
    with pytest.raises(ScaffeError, match="released after use.*net.keep_diffs keeps it"):
        _ = net.blobs["conv2"].diff
    assert np.abs(trained("cifar10_full", True).blobs["conv2"].diff).max() > 0
