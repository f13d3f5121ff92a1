"""Blobs of bfloat16: each kind of layer against the reference forms, over operands that bfloat16 has.

The layer stands between layers that pass on what they get, so that its bottoms and tops are bfloat16. Inputs, weights
and gradients are numbers of bfloat16, whose products float32 sums. Values and gradients of blobs are rounded once,
which changes them by 2^-9 at most; with sums in another order the tolerance is 2^-8 of the number itself, and that of
float32 beside it. Gradients of parameters are not rounded.
"""

import numpy as np
import pytest
from both_engines import TOLERANCE, build, needs_onednn
from google.protobuf import text_format

import scaffe
from scaffe.compute import Compute
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory
from scaffe.proto import NetParameter

pytestmark = [
    needs_onednn,
    pytest.mark.skipif(not lib.load().isa & lib.ISA_AVX512, reason="bfloat16 takes AVX-512"),
]
ROUNDED = 2**-8


def low(values):
    """Return the nearest numbers that bfloat16 has, but for ties."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF) & 0xFFFF0000).view(np.float32)


def layer(kind, fields="", bottoms="x", tops="y", name="it"):
    names = " ".join(f'bottom: "{b}"' for b in bottoms.split()) + "".join(f' top: "{t}"' for t in tops.split())
    return f'layer {{ name: "{name}" type: "{kind}" {names} {fields} }}\n'


def same(bottom, top):
    """Return a layer that passes on what it gets, in bfloat16 if its top is."""
    return layer("Power", bottoms=bottom, tops=top, name=f"{bottom} to {top}")


def between(text, bottoms="x", tops="y"):
    """Return the net of a layer between such layers: from x0, x1, ... to the outputs."""
    before = "".join(same(f"x{i}", name) for i, name in enumerate(bottoms.split()))
    behind = "".join(same(name, f"{name}'") + same(f"{name}'", f"{name}''") for name in tops.split())
    return before + text + behind


def run(text, *shapes, engine="onednn", numbers="bf16", passes=1, positive=False, **settings):
    """Return the net after its passes, and its values and gradients by name."""
    net = build(text, *shapes, engine=engine, numbers=numbers, **settings)
    rng = np.random.default_rng(5)
    for blob in [net.blobs[name] for name in net.inputs] + [b for blobs in net.params.values() for b in blobs]:
        blob.data[...] = low(abs(blob.data) + 0.5 if positive else blob.data)
    net.clear_param_diffs()
    for _ in range(passes):
        net.forward()
        for name in net.outputs:
            net.blobs[name].diff[...] = low(rng.standard_normal(net.blobs[name].shape))
        net.backward()
    return net


def parts(net):
    """Return copies of the values and gradients of all blobs, and the gradients of the parameters."""
    found = {name: blob.data.copy() for name, blob in net.blobs.items()}
    found |= {f"{name} diff": blob.diff.copy() for name, blob in net.blobs.items()}
    learned = {f"{name}[{i}] diff": b.diff.copy() for name, blobs in net.params.items() for i, b in enumerate(blobs)}
    return found, learned


def kind(values):
    """Return the data type of a blob's values or gradients, None where they are in the plain array."""
    return values.form.desc.kind if isinstance(values.form, Memory) else None


def assert_rounded_once(text, *shapes, tolerance=ROUNDED, beside=TOLERANCE, **settings):
    """Compare a net in bfloat16 with the reference in float32; return the former."""
    net = run(text, *shapes, **settings)
    net.types = {name: (kind(blob.values), kind(blob.diff_values)) for name, blob in net.blobs.items()}
    reference = run(text, *shapes, engine="reference", numbers="float32", **settings)
    (found, learned), (expected, learned_expected) = parts(net), parts(reference)
    for name, values in expected.items():
        scale = float(np.abs(values).max())
        np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=beside * scale, err_msg=name)
    for name, values in learned_expected.items():
        scale = float(np.abs(values).max())
        np.testing.assert_allclose(learned[name], values, rtol=0, atol=beside * scale, err_msg=name)
    return net
