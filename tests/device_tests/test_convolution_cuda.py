"""cuDNN's kernels and cuBLAS's products on a real GPU, compared with numpy."""

import numpy as np
import pytest
from a_gpu_of_ours import GPU, with_cudnn
from both_engines import assert_alike, run
from google.protobuf import text_format

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.engines.cuda.launcher import Launcher
from scaffe.engines.cuda.products import Products
from scaffe.proto import NetParameter

KERNELS = 8  # that are run of each pass, spread over all that cuDNN proposes
TOLERANCE = {"float32": 5e-5, "tf32": 5e-3, "bf16": 3e-2}  # of the largest magnitude
CASES = {
    "plain": ("num_output: 24 kernel_size: 3 pad: 1", (4, 16, 14, 14)),
    "first layer": ("num_output: 16 kernel_size: 5 stride: 2", (4, 3, 31, 29)),
    "groups, dilation": ("num_output: 16 kernel_size: 3 pad: 2 stride: 2 dilation: 2 group: 2", (2, 8, 19, 18)),
    "one by one": ("num_output: 64 kernel_size: 1 bias_term: false", (4, 32, 9, 9)),
    "one axis": ("num_output: 8 kernel_size: 3 stride: 2", (2, 8, 19)),
    "three axes": ("num_output: 8 kernel_size: 2", (2, 4, 5, 6, 7)),
}


def net_of(kind, fields, shape, gpu=None, **how):
    """Return a net of one convolution, its input and parameters filled with random numbers."""
    dims = " ".join(f"dim: {size}" for size in shape)
    text = f"""force_backward: true
    layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}
    layer {{ name: "it" type: "{kind}" bottom: "x" top: "y" convolution_param {{ {fields} }} }}"""
    net = scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN, engine=engines.create(Compute(**how), gpu))
    rng = np.random.default_rng(0)
    for blob in (net.blobs["x"], *(blob for blobs in net.params.values() for blob in blobs)):
        blob.data[...] = rng.standard_normal(blob.shape)
    return net


@pytest.mark.parametrize("compute", TOLERANCE)
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("case", CASES)
def test_kernels_of_each_pass_have_numpys_numbers(kind, case, compute):
    gpu = with_cudnn()
    if Launcher(gpu).cudnn is None:
        pytest.skip("no cuDNN")
    expected = run(net_of(kind, *CASES[case], engine="reference"))
    net = net_of(kind, *CASES[case], gpu=gpu, numbers=compute, plan="fixed")
    works = net.layers[-1].works(net.bottoms[-1], net.tops[-1], True)
    found = {name: list(work.time()) for name, work in works.items()}
    assert all(found.values())
    most = max(map(len, found.values()))
    for i in range(0, most, -(-most // KERNELS)):
        net.context.choices.taken = {work: names[min(i, len(names) - 1)] for work, names in found.items()}
        net.replan()
        assert_alike(run(net), expected, TOLERANCE[compute])


@pytest.mark.parametrize("compute", TOLERANCE)
def test_deterministic_runs_repeat_bit_for_bit(compute):
    fields, shape = CASES["plain"]
    first, again = (run(net_of("Convolution", fields, shape, gpu=GPU, numbers=compute, deterministic=True))
                    for _ in range(2))  # fmt: skip
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name], err_msg=name)


@pytest.mark.parametrize("compute", TOLERANCE)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("sizes", [(64, 128, 32), (65, 130, 33)], ids=["aligned", "odd"])
def test_products_are_numpys(compute, turned, count, sizes):
    rng, front = np.random.default_rng(0), (count,) if count else ()
    m, k, n = sizes
    a, b = rng.standard_normal((*front, m, k)), rng.standard_normal((*front, k, n))
    arrays = []
    for matrix, turn in zip((a, b), turned, strict=True):
        matrix = matrix.astype(np.float32)
        lies = GPU.xp.asarray(np.ascontiguousarray(np.swapaxes(matrix, -1, -2)) if turn else matrix)
        arrays.append(lies.swapaxes(-1, -2) if turn else lies)
    out = GPU.xp.full((*front, m, n), 2, np.float32)
    Products(GPU, compute)(*arrays, out, add=True)
    expected = a @ b + 2
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=TOLERANCE[compute] * np.abs(expected).max())
    if compute == "float32":  # for other numbers cuBLAS may take a more precise kernel: that is its choice
        assert np.abs(out.get() - expected).max() < 1e-4
