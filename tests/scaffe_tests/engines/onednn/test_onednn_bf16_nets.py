"""Well-known nets in bfloat16: which reorders an iteration runs, and how large the blobs are."""

from collections import Counter

import numpy as np
import pytest
from both_engines import needs_onednn

import scaffe
from scaffe import models
from scaffe.compute import Compute
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory, Primitive

pytestmark = [
    needs_onednn,
    pytest.mark.skipif(not lib.load().isa & lib.ISA_BF16, reason="emulated, convolutions take other layouts"),
]
FULL = {  # layers that convert blobs from or to float32: those of images, of logits, of products of few rows
    "lenet": {"conv1", "ip1", "ip2"},
    "alexnet": {"conv1", "fc6", "fc7", "fc8"},
    "googlenet": {"conv1/7x7_s2", "loss1/fc", "loss1/classifier", "loss2/fc", "loss2/classifier", "loss3/classifier"},
    "resnet50": {"conv1", "fc1000"},
}


def iterate(net):
    net.clear_param_diffs()
    for i in range(len(net.layers)):
        net.forward_layer(i)
    for i in reversed(range(len(net.layers))):
        net.backward_layer(i)


def conversions(net, monkeypatch):
    """Return the layers that convert blobs to or from float32 in an iteration; pooling sums in float32."""
    found, current = Counter(), []
    run, forward, backward = Primitive.run, net.forward_layer, net.backward_layer
    weights = {blob.count for blobs in net.params.values() for blob in blobs}

    def noted(step):
        return lambda i: (current.append(net.layers[i]), step(i), current.pop())

    def noting_run(primitive):
        run(primitive)
        ends = [primitive.memories.get(arg) for arg in (lib.ARG_SRC, lib.ARG_DST)]
        if primitive.desc.operation == "reorder" and lib.F32 in [end.desc.kind for end in ends]:
            found[current[-1]] += int(np.prod(ends[0].desc.shape)) not in weights

    monkeypatch.setattr(Primitive, "run", noting_run)
    monkeypatch.setattr(net, "forward_layer", noted(forward))
    monkeypatch.setattr(net, "backward_layer", noted(backward))
    iterate(net)
    return {layer.name for layer, count in found.items() if count and layer.type != "Pooling"}


def sizes(net):
    """Return the bytes that the net's blobs hold, and those of the same numbers in float32 without padding."""
    held: dict[int, tuple[int, int]] = {}
    full = 0
    for blob in net.blobs.values():
        for values in (blob.values, blob.diff_values):
            memory = values.form.buffer if isinstance(values.form, Memory) else values.array
            if memory is not None and id(values) not in held:
                held[id(values)] = memory.ctypes.data, memory.nbytes
                full += 4 * blob.count
            if isinstance(values.form, Memory):
                assert values.array is None
    return sum(dict(held.values()).values()), full


@pytest.mark.parametrize("name", FULL)
def test_between_the_first_layer_and_the_loss_blobs_are_bfloat16(name, monkeypatch):
    param = models.get(name).train_val(batch=2, data="input")
    net = scaffe.Net(param, scaffe.TRAIN, compute=Compute("onednn", numbers="bf16"))
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal(net.blobs["data"].shape)
    iterate(net)
    held, full = sizes(net)
    assert held <= 0.55 * full
    assert conversions(net, monkeypatch) == FULL[name]
