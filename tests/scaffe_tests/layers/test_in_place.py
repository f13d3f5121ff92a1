"""Chains of layers that work in place on one blob: what Caffe's rules make of values that layers behind overwrote.

The rules are those of Caffe's src/caffe/layers/*.cpp, written out in float64: which of the blob's memory, which by the
backward pass holds what the last layer left there, and of its own copies each layer reads.
"""

import numpy as np
import pytest
from both_engines import build, needs_onednn
from strict_arrays import a_gpu

import scaffe


class Rule:
    """Caffe's layer over the one blob's `data` and `diff`, (N x C x ...)."""

    fields = ""
    terms = ()  # the parameters' gradients before they are summed over all but the channels

    def __init__(self, rng, channels):
        pass

    def blobs(self):
        return []

    def spread(self, values, like):
        return values.reshape(1, -1, *[1] * (like.ndim - 2))


class ReLU(Rule):
    """Reads bottom_data."""

    def __init__(self, rng, channels, slope=0.0):
        self.slope, self.fields = slope, f"relu_param {{ negative_slope: {slope} }}"

    def forward(self, data):
        return np.maximum(data, 0) + self.slope * np.minimum(data, 0)

    def backward(self, bottom, top, diff):
        return diff * ((bottom > 0) + self.slope * (bottom <= 0))


class Leaky(ReLU):
    def __init__(self, rng, channels):
        super().__init__(rng, channels, 0.2)


class PReLU(Rule):
    """Reads bottom_memory_, a copy."""

    def __init__(self, rng, channels):
        self.slopes = rng.uniform(0.1, 0.5, channels)

    def blobs(self):
        return [self.slopes]

    def forward(self, data):
        self.memory = data.copy()
        return np.maximum(data, 0) + self.spread(self.slopes, data) * np.minimum(data, 0)

    def backward(self, bottom, top, diff):
        self.terms = [diff * self.memory * (self.memory <= 0)]
        return diff * ((self.memory > 0) + self.spread(self.slopes, diff) * (self.memory <= 0))


class ELU(Rule):
    """Reads bottom_data and top_data."""

    def __init__(self, rng, channels):
        self.alpha, self.fields = 0.5, "elu_param { alpha: 0.5 }"

    def forward(self, data):
        return np.maximum(data, 0) + self.alpha * (np.exp(np.minimum(data, 0)) - 1)

    def backward(self, bottom, top, diff):
        return diff * ((bottom > 0) + (self.alpha + top) * (bottom <= 0))


class Sigmoid(Rule):
    """Reads top_data."""

    def forward(self, data):
        return 1 / (1 + np.exp(-data))

    def backward(self, bottom, top, diff):
        return diff * top * (1 - top)


class TanH(Rule):
    """Reads top_data."""

    def forward(self, data):
        return np.tanh(data)

    def backward(self, bottom, top, diff):
        return diff * (1 - top * top)


class Exp(Rule):
    """Reads top_data."""

    fields = "exp_param { scale: 0.25 }"

    def forward(self, data):
        return np.exp(0.25 * data)

    def backward(self, bottom, top, diff):
        return 0.25 * diff * top


class PlainExp(Exp):
    fields = ""

    def forward(self, data):
        return np.exp(data)

    def backward(self, bottom, top, diff):
        return diff * top


class Swish(Rule):
    """Reads top_data, and sigmoid_output_, a copy."""

    fields = "swish_param { beta: 1.5 }"

    def forward(self, data):
        self.gate = 1 / (1 + np.exp(-1.5 * data))
        return data * self.gate

    def backward(self, bottom, top, diff):
        return diff * (1.5 * top + self.gate * (1 - 1.5 * top))


class Softmax(Rule):
    """Reads top_data."""

    def forward(self, data):
        powers = np.exp(data - data.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def backward(self, bottom, top, diff):
        return (diff - (diff * top).sum(axis=1, keepdims=True)) * top


class Scale(Rule):
    """Reads temp_, a copy of its bottom."""

    fields = "scale_param { bias_term: true }"

    def __init__(self, rng, channels):
        self.factors, self.summands = rng.uniform(0.5, 1.5, channels), rng.standard_normal(channels)

    def blobs(self):
        return [self.factors, self.summands]

    def forward(self, data):
        self.temp = data.copy()
        return data * self.spread(self.factors, data) + self.spread(self.summands, data)

    def backward(self, bottom, top, diff):
        self.terms = [diff * self.temp, diff]
        return diff * self.spread(self.factors, diff)


class Bias(Rule):
    """Reads nothing."""

    def __init__(self, rng, channels):
        self.summands = rng.standard_normal(channels)

    def blobs(self):
        return [self.summands]

    def forward(self, data):
        return data + self.spread(self.summands, data)

    def backward(self, bottom, top, diff):
        self.terms = [diff]
        return diff


class BatchNorm(Rule):
    """Reads x_norm_, a copy of its top, and temp_."""

    fields = "batch_norm_param { use_global_stats: false eps: 0.001 }"

    def forward(self, data):
        axes = (0, *range(2, data.ndim))
        centred = data - data.mean(axis=axes, keepdims=True)
        self.temp = np.sqrt((centred**2).mean(axis=axes, keepdims=True) + 0.001)
        self.x_norm = centred / self.temp
        return self.x_norm.copy()

    def backward(self, bottom, top, diff):
        axes = (0, *range(2, diff.ndim))
        means = diff.mean(axis=axes, keepdims=True), (diff * self.x_norm).mean(axis=axes, keepdims=True)
        return (diff - means[0] - means[1] * self.x_norm) / self.temp


class GlobalNorm(Rule):
    """Reads temp_."""

    fields = "batch_norm_param { use_global_stats: true eps: 0.001 }"

    def __init__(self, rng, channels):
        self.sums_ = [rng.standard_normal(channels), rng.uniform(1, 2, channels), np.array([2.0])]

    def blobs(self):
        return self.sums_

    def forward(self, data):
        mean, variance = (self.spread(sums / 2, data) for sums in self.sums_[:2])
        self.temp = np.sqrt(variance + 0.001)
        return (data - mean) / self.temp

    def backward(self, bottom, top, diff):
        return diff / self.temp


class Dropout(Rule):
    """Reads rand_vec_; in the TEST phase it copies."""

    def forward(self, data):
        return data

    def backward(self, bottom, top, diff):
        return diff


# The layers whose own gradient Caffe spoils in place, as it writes it over the one that it still reads, or whose input
# is gone; ours keep what they need. AbsVal is refused by Caffe.
class Power(Rule):
    fields = "power_param { power: 3 scale: 0.25 shift: 0.5 }"

    def forward(self, data):
        self.x = data.copy()
        return (0.25 * data + 0.5) ** 3

    def backward(self, bottom, top, diff):
        return diff * 0.75 * (0.25 * self.x + 0.5) ** 2


class Clip(Rule):
    fields = "clip_param { min: -0.5 max: 0.25 }"

    def forward(self, data):
        self.x = data.copy()
        return np.clip(data, -0.5, 0.25)

    def backward(self, bottom, top, diff):
        return diff * ((self.x >= -0.5) & (self.x <= 0.25))


class BNLL(Rule):
    def forward(self, data):
        self.x = data.copy()
        return np.logaddexp(data, 0)

    def backward(self, bottom, top, diff):
        return diff / (1 + np.exp(-self.x))


class MVN(Rule):
    def forward(self, data):
        axes = tuple(range(2, data.ndim))
        centred = data - data.mean(axis=axes, keepdims=True)
        self.deviation = np.sqrt((centred**2).mean(axis=axes, keepdims=True)) + 1e-9
        self.y = centred / self.deviation
        return self.y.copy()

    def backward(self, bottom, top, diff):
        axes = tuple(range(2, diff.ndim))
        means = diff.mean(axis=axes, keepdims=True), (diff * self.y).mean(axis=axes, keepdims=True)
        return (diff - means[0] - means[1] * self.y) / self.deviation


TYPES = {Leaky: "ReLU", PlainExp: "Exp", GlobalNorm: "BatchNorm"}
SAFE = [ReLU, Leaky, PReLU, ELU, Sigmoid, TanH, Exp, PlainExp, Swish, Softmax, Scale, Bias, BatchNorm, GlobalNorm,
        Dropout]  # fmt: skip
KEPT = [Power, Clip, BNLL, MVN]
SHAPE = (3, 16, 4, 5)


def chains():
    """Each layer before each of some that change the values, and longer chains, some drawn at random."""
    for first in [*SAFE, *KEPT]:
        yield from ([first, second] for second in (Sigmoid, Scale))
    yield [BatchNorm, Scale, ReLU, Sigmoid]
    yield [Leaky, PReLU, ELU, Sigmoid, TanH, Scale, GlobalNorm, Dropout]
    for seed in range(8):
        yield list(np.random.default_rng(seed).choice([*SAFE, Power, Clip, BNLL], 6))  # MVN would magnify rounding


def make(chain, first, apart, engine):
    """Return a net of the chain over x0, or a convolution of it, and its rules; `apart` gives its first layer a top."""
    text, bottom = first, "y" if first else "x0"
    rules = [kind(np.random.default_rng([7, k]), SHAPE[1]) for k, kind in enumerate(chain)]
    for k, (kind, rule) in enumerate(zip(chain, rules, strict=True)):
        top = "z" if apart else bottom
        it = TYPES.get(kind, kind.__name__)
        text += f'layer {{ name: "l{k}" type: "{it}" bottom: "{bottom}" top: "{top}" {rule.fields} }}\n'
        bottom = top
    how = {"gpu": a_gpu()} if engine == "cuda" else {}
    net = build(text, SHAPE, engine="auto" if engine == "cuda" else engine, phase=scaffe.TEST, **how)
    for k, rule in enumerate(rules):
        for blob, values in zip(net.params.get(f"l{k}", []), rule.blobs(), strict=False):
            blob.data[...] = values
    return net, rules


CONVOLUTION = """layer { name: "c" type: "Convolution" bottom: "x0" top: "y"
  convolution_param { num_output: 16 kernel_size: 1 bias_term: false } }
"""


@pytest.mark.parametrize(
    ("engine", "first"),
    [
        ("reference", ""),
        ("cuda", ""),
        pytest.param("onednn", "", marks=needs_onednn),
        pytest.param("onednn", CONVOLUTION, marks=needs_onednn),
    ],
    ids=["reference", "cuda", "plain", "blocked"],
)
@pytest.mark.parametrize("apart", [False, True], ids=["in place", "first apart"])
@pytest.mark.parametrize("chain", list(chains()), ids=lambda chain: "-".join(kind.__name__ for kind in chain))
def test_gradients_are_those_of_caffes_rules(chain, first, apart, engine):
    if apart and chain[0] in KEPT:
        chain = [Sigmoid, *chain]
    net, rules = make(chain, first, apart, engine)
    x = net.blobs["x0"].data.astype(np.float64)
    kernel = net.params["c"][0].data[:, :, 0, 0].astype(np.float64) if first else np.eye(SHAPE[1])
    data = bottom = np.einsum("oc,nchw->nohw", kernel, x)
    for rule in rules:
        data = rule.forward(data)
    net.forward()
    (name,) = net.outputs
    close(net.blobs[name].data, data)
    diff = np.random.default_rng(1).standard_normal(SHAPE)
    net.blobs[name].diff[...] = diff
    net.backward()
    for rule in reversed(rules):  # all of them in the memory that the last one wrote, but where the first stands apart
        diff = rule.backward(bottom if apart and rule is rules[0] else data, data, diff)
    for k, rule in enumerate(rules):
        for blob, terms in zip(net.params.get(f"l{k}", []), rule.terms, strict=False):
            close(blob.diff, terms.sum(axis=(0, 2, 3)), np.abs(terms).sum(axis=(0, 2, 3)))
    close(net.blobs["x0"].diff, np.einsum("oc,nohw->nchw", kernel, diff))


def close(found, expected, scale=None):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected if scale is None else scale).max())
