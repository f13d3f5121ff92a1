"""InnerProduct on a stand-in for a GPU: rounded factors of large layers, from plain and from typed bottoms."""

import numpy as np
import pytest
from both_engines import assert_alike, build, run
from cudnn_gpu import gpu_with
from host_kernels import Kernel

from scaffe.engines.cuda import inner_product

LAYERS = """
layer { name: "conv" type: "Convolution" bottom: "x0" top: "a" convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "pool" type: "Pooling" bottom: "a" top: "b" pooling_param { kernel_size: 2 stride: 2 pool: AVE } }
layer { name: "one" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 7 } }
layer { name: "two" type: "InnerProduct" bottom: "c" top: "y" inner_product_param { num_output: 5 transpose: true } }
"""
SHAPE = 4, 3, 9, 8


@pytest.fixture
def _all_are_large(monkeypatch):
    monkeypatch.setattr(inner_product, "LARGE", 1)


@pytest.mark.usefixtures("_all_are_large")
@pytest.mark.parametrize("bias", ["", "bias_term: false"])
def test_large_layers_multiply_rounded_factors(monkeypatch, bias):
    names, call = [], Kernel.__call__
    monkeypatch.setattr(Kernel, "__call__", lambda self, *given: (names.append(self.name), call(self, *given)))
    layers = LAYERS.replace("num_output: 7", f"num_output: 7 {bias}")
    net = build(layers, SHAPE, engine="auto", gpu=gpu_with(), numbers="bf16", plan="fixed")
    found, right = run(net, 2), run(build(layers, SHAPE, engine="reference"), 2)
    assert_alike(found, right, 3e-2)
    assert any(not np.allclose(found[name], right[name], atol=1e-5) for name in right)
    names.clear()
    run(net, 1)
    # The first layer's weights and gradient, the second one's with its bottom: the first one's bottom is bfloat16.
    of_bias = 1  # of the convolution
    assert names.count("to_bf16") == 2 + 3 + of_bias and "turn_narrow_bf16" in names


def test_small_layers_round_nothing_themselves():
    nets = [build(LAYERS, SHAPE, engine="auto", gpu=gpu_with(), numbers="bf16", plan="fixed") for _ in range(2)]
    for net in nets:
        net.forward()
    dtypes = {layer.name: layer._weights.dtype for layer in nets[0].layers if layer.type == "InnerProduct"}
    assert dtypes == {"one": np.float32, "two": np.float32}
