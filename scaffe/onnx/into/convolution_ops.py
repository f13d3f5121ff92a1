"""Conv and ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.readers import Op, Unreadable, reads


def pads_of(op: Op, size: Sequence[int], extent: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the padding at the begin and the end of each axis of space."""
    auto, count = op.get("auto_pad", "NOTSET"), len(size)
    if auto in ("NOTSET", "VALID", ""):
        pads = list(op.get("pads") or [0] * (2 * count)) if auto != "VALID" else [0] * (2 * count)
        return pads[:count], pads[count:]
    total = [max(0, (-(-n // s) - 1) * s + e - n) for n, e, s in zip(size, extent, strides, strict=True)]
    small, large = [n // 2 for n in total], [n - n // 2 for n in total]
    return (small, large) if auto == "SAME_UPPER" else (large, small)


@reads("Conv")
def _conv(layers: GrownNet, op: Op) -> str:
    x, weights = op.blob(layers), op.needed(1)
    space = weights.ndim - 2
    strides, dilations = (list(op.get(name) or [1] * space) for name in ("strides", "dilations"))
    extent = [d * (k - 1) + 1 for k, d in zip(weights.shape[2:], dilations, strict=True)]
    begins, ends = pads_of(op, layers.shape(x)[2:], extent, strides)
    if begins != ends:
        x, begins = layers.pad(x, begins, ends), [0] * space
    bias = op.constant(2)
    param = dict(
        num_output=weights.shape[0], group=op.get("group", 1), kernel_size=weights.shape[2:], stride=strides,
        dilation=dilations, pad=begins, bias_term=bias is not None,
    )  # fmt: skip
    return layers.add("Convolution", [x], _with(weights, bias), convolution_param=param)


@reads("ConvTranspose")
def _conv_transpose(layers: GrownNet, op: Op) -> str:
    """Read a Deconvolution without padding, whose top is cut; a filter with more zeros makes a larger one."""
    x, weights = op.blob(layers), op.needed(1)
    space, group = weights.ndim - 2, op.get("group", 1)
    strides, dilations = (list(op.get(name) or [1] * space) for name in ("strides", "dilations"))
    extent = [d * (k - 1) + 1 for k, d in zip(weights.shape[2:], dilations, strict=True)]
    full = [s * (n - 1) + e for n, e, s in zip(layers.shape(x)[2:], extent, strides, strict=True)]
    begins, sizes = _placed(op, layers.shape(x)[2:], full, strides)
    more = [max(0, b + n - f) for b, n, f in zip(begins, sizes, full, strict=True)]
    if any(more):
        taps = [-(-m // d) for m, d in zip(more, dilations, strict=True)]
        weights = np.pad(weights, [(0, 0), (0, 0), *((0, tap) for tap in taps)])
    bias = op.constant(2)
    param = dict(
        num_output=weights.shape[1] * group, group=group, kernel_size=weights.shape[2:], stride=strides,
        dilation=dilations, bias_term=bias is not None,
    )  # fmt: skip
    if all(f - n - b == b and not m for f, n, b, m in zip(full, sizes, begins, more, strict=True)):
        return layers.add("Deconvolution", [x], _with(weights, bias), convolution_param=param | dict(pad=begins))
    y = layers.add("Deconvolution", [x], _with(weights, bias), convolution_param=param)
    for axis, (begin, size) in enumerate(zip(begins, sizes, strict=True), 2):
        if begin < 0:
            raise Unreadable(f"its output begins {-begin} before the first value, which no layer gives")
        y = layers.cut(y, axis, begin, begin + size)
    return y


def _with(weights: np.ndarray, bias: np.ndarray | None) -> list[np.ndarray]:
    return [weights] if bias is None else [weights, bias]


def _placed(op: Op, size: Sequence[int], full: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the first value of each axis that is kept, and the number of those."""
    count = len(size)
    extra = list(op.get("output_padding") or [0] * count)
    wanted, auto = op.get("output_shape"), op.get("auto_pad", "NOTSET")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(size, strides, strict=True)]
    if wanted is None:
        pads = list(op.get("pads") or [0] * (2 * count)) if auto != "VALID" else [0] * (2 * count)
        begins, ends = pads[:count], pads[count:]
        return begins, [f - b - e + m for f, b, e, m in zip(full, begins, ends, extra, strict=True)]
    wanted = list(wanted)[-count:]
    total = [f + m - w for f, m, w in zip(full, extra, wanted, strict=True)]
    begins = [n // 2 if auto == "SAME_UPPER" else n - n // 2 for n in total]
    return begins, wanted
