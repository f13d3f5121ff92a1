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
    counts = {
        layer: {blob.count for blob in (*bottom, *top)} - weights
        for layer, bottom, top in zip(net.layers, net.bottoms, net.tops, strict=True)
    }

    def noted(step):
        return lambda i: (current.append(net.layers[i]), step(i), current.pop())

    def noting_run(primitive, *given):
        run(primitive, *given)
        ends = [primitive.memories.get(arg) for arg in (lib.ARG_SRC, lib.ARG_DST)]
        if primitive.desc.operation == "reorder" and lib.F32 in [end.desc.kind for end in ends]:
            found[current[-1]] += int(np.prod(ends[0].desc.shape)) in counts[current[-1]]

    monkeypatch.setattr(Primitive, "run", noting_run)
    monkeypatch.setattr(net, "forward_layer", noted(forward))
    monkeypatch.setattr(net, "backward_layer", noted(backward))
    iterate(net)
    return {layer.name for layer, count in found.items() if count and layer.type != "Pooling"}


def sizes(net):
    """Return the bytes that the net's blobs hold, and those of as many numbers in float32."""
    held, full = {}, {}
    for blob in net.blobs.values():
        for values in (blob.values, blob.diff_values):
            form = values.form if isinstance(values.form, Memory) else None
            assert form is None or values.array is None
            memory = values.array if form is None else form.buffer
            if memory is not None:
                held[memory.ctypes.data] = memory.nbytes
                full[id(values)] = memory.nbytes * (2 if form and form.desc.kind == lib.BF16 else 1)
    return sum(held.values()), sum(full.values())


@pytest.mark.parametrize("name", FULL)
def test_between_the_first_layer_and_the_loss_blobs_are_bfloat16(name, monkeypatch):
    param = models.get(name).train_val(batch=2, data="input")
    net = scaffe.Net(param, scaffe.TRAIN, compute=Compute("onednn", numbers="bf16"))
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal(net.blobs["data"].shape)
    iterate(net)
    held, full = sizes(net)
    assert held <= 0.55 * full
    assert conversions(net, monkeypatch) == FULL[name]
