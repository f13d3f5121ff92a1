"""The same net on the reference and the oneDNN engine, from the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.engines.onednn import library
from scaffe.errors import OnednnError
from scaffe.proto import NetParameter

AVX, AVX2, AVX512 = 0x2, 0x4, library.ISA_AVX512  # bits of dnnl_cpu_isa_t
TOLERANCE = 2e-5  # of the largest magnitude: float32 sums in another order


def why_missing() -> str:
    """Return why oneDNN can't be used here, "" if it can."""
    try:
        library.load()
    except OnednnError as error:
        return str(error)
    return ""


needs_onednn = pytest.mark.skipif(bool(why_missing()), reason=why_missing() or "oneDNN is there")


def uses(isa: int) -> bool:
    """Say whether oneDNN uses an instruction set here: AVX, AVX2 or AVX512. ONEDNN_MAX_CPU_ISA may limit it."""
    return bool(library.load().isa & isa)


def why_no_bf16() -> str:
    """Return why oneDNN can't compute in bfloat16 here, "" if it can."""
    if (missing := why_missing()) or uses(AVX512):
        return missing
    return f"bf16 needs AVX-512, oneDNN uses {library.load().isa_name} here"


needs_bf16 = pytest.mark.skipif(bool(why_no_bf16()), reason=why_no_bf16() or "oneDNN computes in bfloat16")


def build(
    layers: str,
    *shapes: Sequence[int],
    engine: str = "onednn",
    phase: int = scaffe.TRAIN,
    force_backward: bool = True,
    gpu: Any = None,
    **compute: Any,
) -> scaffe.Net:
    """Return the net of `layers` over Input blobs x0, x1, ... of these shapes, filled with random numbers."""
    text = f"force_backward: {str(force_backward).lower()}\n"
    for i, shape in enumerate(shapes):
        sizes = " ".join(f"dim: {size}" for size in shape)
        text += f'layer {{ name: "x{i}" type: "Input" top: "x{i}" input_param {{ shape {{ {sizes} }} }} }}\n'
    net = scaffe.Net(
        text_format.Parse(text + layers, NetParameter()), phase, engine=engines.create(Compute(engine, **compute), gpu)
    )
    rng = np.random.default_rng(0)
    for i, shape in enumerate(shapes):
        net.blobs[f"x{i}"].data[...] = rng.standard_normal(shape)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = rng.standard_normal(blob.shape) / max(1, np.prod(blob.shape[1:])) ** 0.5
    return net


def run(net: scaffe.Net, passes: int = 1) -> dict[str, np.ndarray]:
    """Run forward and backward from random gradients of the outputs; return all that was computed, by name."""
    rng = np.random.default_rng(1)
    net.clear_param_diffs()
    for _ in range(passes):
        net.forward()
        for name in net.outputs:
            net.blobs[name].diff[...] = rng.standard_normal(net.blobs[name].shape)
        net.backward()
    found = {name: blob.data.copy() for name, blob in net.blobs.items()}
    found |= {f"{name} diff": net.blobs[name].diff.copy() for name in net.inputs}
    for layer, blobs in net.params.items():
        found |= {f"{layer}[{i}] diff": blob.diff.copy() for i, blob in enumerate(blobs)}
    return found


def assert_alike(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = TOLERANCE) -> None:
    """Fail unless the numbers agree to `tolerance` of each array's largest magnitude."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        scale = max(1e-3, float(np.abs(values).max(initial=0)))
        np.testing.assert_allclose(found[name], values, rtol=0, atol=tolerance * scale, err_msg=name)


def assert_engines_agree(layers: str, *shapes: Sequence[int], passes: int = 1, phase: int = scaffe.TRAIN) -> scaffe.Net:
    """Run the net on both engines and compare everything; return the oneDNN one."""
    net = build(layers, *shapes, phase=phase)
    found = run(net, passes)
    assert_alike(found, run(build(layers, *shapes, engine="reference", phase=phase), passes))
    return net


def is_fast(net: scaffe.Net, layer: str) -> bool:
    """Say whether a layer computes by oneDNN's primitives."""
    return net.layer_dict[layer]._primitives is not None


def directional_slope(
    net: scaffe.Net, blob: scaffe.Blob, diff: np.ndarray, step: float = 2e-2
) -> tuple[float, float, float]:
    """Return the net's central difference along a random direction of a blob, `diff` along it, and `diff`'s norm.

    `diff` is what `run` found: the gradient of the output y, weighted as `run` does.
    """
    weights = np.random.default_rng(1).standard_normal(net.blobs["y"].shape).astype(np.float32).astype(np.float64)
    direction = np.random.default_rng(2).standard_normal(blob.shape)
    direction /= np.linalg.norm(direction)
    kept, sides = blob.data.copy(), []
    for sign in (1, -1):
        blob.data[...] = kept + sign * step * direction
        net.forward()
        sides.append((weights * net.blobs["y"].data).sum())
    blob.data[...] = kept
    return (sides[0] - sides[1]) / (2 * step), float((diff * direction).sum()), float(np.linalg.norm(diff))
