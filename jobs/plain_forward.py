"""A net's forward pass at inference in plain numpy, layer by layer, by the prototxt and its weights alone.

It shares nothing with scaffe's layers but the messages of the prototxt; jobs/published.py compares both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Arrays = Sequence[np.ndarray]
FORMS: dict[str, Callable[..., Any]] = {}


def form(*kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of (layer, bottoms, weights) that returns the top, or a list of tops, for layer types."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        FORMS.update(dict.fromkeys(kinds, function))
        return function

    return decorate


def run(layer: Any, bottoms: Arrays, weights: Arrays) -> list[np.ndarray]:
    """Return the tops of a layer. Raise KeyError for a type that is not here."""
    found = FORMS[layer.type](layer, list(bottoms), list(weights))
    return found if isinstance(found, list) else [found]


def pair(param: Any, name: str, single: str, default: int) -> tuple[int, int]:
    """Return a field's height and width."""
    if param.HasField(f"{name}_h"):
        return getattr(param, f"{name}_h"), getattr(param, f"{name}_w")
    given = getattr(param, single)
    values = list(given) if hasattr(given, "__len__") else [given] if param.HasField(single) else []
    values = values or [default]
    return (values[0], values[-1])


def windows(x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], dilation: Sequence[int]):
    """Return the windows of images (N x C x h x w x kernel)."""
    x = np.pad(x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    found = sliding_window_view(x, reach, axis=(2, 3))
    return found[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


@form("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def _convolution(layer, x, w):
    p = layer.convolution_param
    kernel, stride, pad = pair(p, "kernel", "kernel_size", 0), pair(p, "stride", "stride", 1), pair(p, "pad", "pad", 0)
    dilation = (list(p.dilation) or [1])[0], (list(p.dilation) or [1])[-1]
    group = x[0].shape[1] if layer.type != "Convolution" else p.group
    parts = []
    for own, filters in zip(np.split(x[0], group, 1), np.split(w[0], group), strict=True):
        seen = windows(own, kernel, stride, pad, dilation)
        columns = np.ascontiguousarray(seen.transpose(0, 2, 3, 1, 4, 5)).reshape(*seen.shape[:1], *seen.shape[2:4], -1)
        parts.append((columns @ filters.reshape(len(filters), -1).T).transpose(0, 3, 1, 2))
    y = np.concatenate(parts, 1)
    return y + w[1][:, None, None] if p.bias_term else y


@form("Deconvolution")
def _deconvolution(layer, x, w):
    p = layer.convolution_param
    kernel, stride, pad = pair(p, "kernel", "kernel_size", 0), pair(p, "stride", "stride", 1), pair(p, "pad", "pad", 0)
    (n, _, h, wide), each = x[0].shape, w[0].shape[1]
    whole = np.zeros((n, each * p.group, (h - 1) * stride[0] + kernel[0], (wide - 1) * stride[1] + kernel[1]))
    for g, (own, filters) in enumerate(zip(np.split(x[0], p.group, 1), np.split(w[0], p.group), strict=True)):
        spread = np.tensordot(own, filters, (1, 0))  # n h w each kh kw
        for i, j in np.ndindex(*kernel):
            rows, columns = (
                slice(a, a + s * (m - 1) + 1, s) for a, s, m in zip((i, j), stride, (h, wide), strict=True)
            )
            whole[:, g * each : (g + 1) * each, rows, columns] += spread[..., i, j].transpose(0, 3, 1, 2)
    y = whole[:, :, pad[0] : whole.shape[2] - pad[0], pad[1] : whole.shape[3] - pad[1]]
    return y + w[1][:, None, None] if p.bias_term else y


@form("Pooling")
def _pooling(layer, x, w):
    p, (n, c, *size) = layer.pooling_param, x[0].shape
    kernel = size if p.global_pooling else pair(p, "kernel", "kernel_size", 0)
    stride, pad = pair(p, "stride", "stride", 1), pair(p, "pad", "pad", 0)
    out = []
    for length, k, s, a in zip(size, kernel, stride, pad, strict=True):
        count = (math.floor if p.round_mode else math.ceil)((length + 2 * a - k) / s) + 1
        out.append(count - 1 if any(pad) and (count - 1) * s >= length + a else count)
    y, places = np.empty((n, c, *out)), np.empty((n, c, *out))
    for i, j in np.ndindex(*out):
        top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
        end = min(top + kernel[0], size[0] + pad[0]), min(left + kernel[1], size[1] + pad[1])
        window = x[0][:, :, max(top, 0) : min(end[0], size[0]), max(left, 0) : min(end[1], size[1])]
        if p.pool == p.AVE:
            y[:, :, i, j] = window.sum((2, 3)) / ((end[0] - top) * (end[1] - left))
            continue
        best = window.reshape(n, c, -1).argmax(2)
        y[:, :, i, j] = window.reshape(n, c, -1).max(2)
        places[:, :, i, j] = (max(top, 0) + best // window.shape[3]) * size[1] + max(left, 0) + best % window.shape[3]
    return [y, places][: len(layer.top)]


@form("InnerProduct")
def _inner_product(layer, x, w):
    flat = x[0].reshape(len(x[0]), -1)
    y = flat @ (w[0] if layer.inner_product_param.transpose else w[0].T)
    return y + w[1] if layer.inner_product_param.bias_term else y


def channels(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return a value for each channel, to be spread over x."""
    return values.reshape(1, -1, *[1] * (x.ndim - 2))


@form("ReLU", "ReLU6")
def _relu(layer, x, w):
    slope = (layer.relu6_param if layer.type == "ReLU6" else layer.relu_param).negative_slope
    y = np.where(x[0] > 0, x[0], slope * x[0])
    return np.minimum(y, 6) if layer.type == "ReLU6" else y


@form("PReLU")
def _prelu(layer, x, w):
    return np.where(x[0] > 0, x[0], x[0] * (w[0] if w[0].size == 1 else channels(w[0], x[0])))


@form("Sigmoid")
def _sigmoid(layer, x, w):
    return 1 / (1 + np.exp(-x[0]))


@form("HardSwish")
def _hard_swish(layer, x, w):
    return x[0] * np.clip(x[0] + 3, 0, 6) / 6


@form("Mish")
def _mish(layer, x, w):
    return x[0] * np.tanh(np.logaddexp(x[0], 0))


@form("CReLU")
def _crelu(layer, x, w):
    return np.concatenate([np.maximum(x[0], 0), np.maximum(-x[0], 0)], 1)


@form("Softmax")
def _softmax(layer, x, w):
    powers = np.exp(x[0] - x[0].max(layer.softmax_param.axis, keepdims=True))
    return powers / powers.sum(layer.softmax_param.axis, keepdims=True)


@form("BatchNorm")
def _batch_norm(layer, x, w):
    factor = 1 / w[2] if w[2] else 0
    return (x[0] - channels(w[0] * factor, x[0])) / np.sqrt(channels(w[1] * factor, x[0]) + layer.batch_norm_param.eps)


@form("BN")
def _bn(layer, x, w):
    y = x[0]
    if len(w) == 4:
        y = (y - channels(w[2], y)) / np.sqrt(channels(w[3], y) + layer.bn_param.eps)
    elif layer.bn_param.bn_mode == layer.bn_param.LEARN:
        y = (y - y.mean((0, 2, 3), keepdims=True)) / np.sqrt(y.var((0, 2, 3), keepdims=True) + 1e-9)
    return y * channels(w[0], y) + channels(w[1], y)


@form("Scale")
def _scale(layer, x, w):
    if len(x) == 2:
        axis = layer.scale_param.axis
        return x[0] * x[1].reshape(*[1] * axis, *x[1].shape, *[1] * (x[0].ndim - axis - x[1].ndim))
    return x[0] * channels(w[0], x[0]) + (channels(w[1], x[0]) if layer.scale_param.bias_term else 0)


@form("Axpy")
def _axpy(layer, x, w):
    return x[0].reshape(*x[1].shape[:2], 1, 1) * x[1] + x[2]


@form("Eltwise")
def _eltwise(layer, x, w):
    p = layer.eltwise_param
    if p.operation == p.SUM:
        return sum(c * b for c, b in zip(list(p.coeff) or [1] * len(x), x, strict=True))
    return (np.multiply if p.operation == p.PROD else np.maximum).reduce(x)


@form("Concat")
def _concat(layer, x, w):
    p = layer.concat_param
    return np.concatenate(x, p.concat_dim if p.HasField("concat_dim") else p.axis)


@form("Slice")
def _slices(layer, x, w):
    p = layer.slice_param
    return np.split(x[0], list(p.slice_point) or len(layer.top), p.axis)


@form("Split")
def _split(layer, x, w):
    return [x[0]] * len(layer.top)


@form("Dropout")
def _dropout(layer, x, w):
    return x[0]


@form("Silence")
def _silence(layer, x, w):
    return []


@form("Flatten")
def _flatten(layer, x, w):
    axis = layer.flatten_param.axis
    return x[0].reshape(*x[0].shape[:axis], -1)


@form("Reshape")
def _reshape(layer, x, w):
    p = layer.reshape_param
    return x[0].reshape([x[0].shape[i] if n == 0 else n for i, n in enumerate(p.shape.dim)])


@form("Permute")
def _permute(layer, x, w):
    return x[0].transpose(list(layer.permute_param.order))


@form("Normalize")
def _normalize(layer, x, w):
    p = layer.norm_param
    norm = np.sqrt((x[0] ** 2).sum((1, 2, 3) if p.across_spatial else 1, keepdims=True) + p.eps)
    return x[0] / norm * (w[0] if p.channel_shared else channels(w[0], x[0]))


@form("PriorBox")
def _prior_box(layer, x, w):
    p, (height, width) = layer.prior_box_param, x[1].shape[2:]
    ratios = [1.0]
    for ratio in p.aspect_ratio:
        if all(abs(ratio - one) > 1e-6 for one in ratios):
            ratios += [ratio, 1 / ratio] if p.flip else [ratio]
    rows = []
    for i, j in np.ndindex(*x[0].shape[2:]):
        step_y, step_x = (p.step, p.step) if p.HasField("step") else (height / x[0].shape[2], width / x[0].shape[3])
        cx, cy = (j + p.offset) * step_x, (i + p.offset) * step_y
        for k, size in enumerate(map(int, p.min_size)):
            sides = [(size, size)]
            if p.max_size:
                sides.append((math.sqrt(size * int(p.max_size[k])),) * 2)
            sides += [(size * math.sqrt(r), size / math.sqrt(r)) for r in ratios[1:]]
            rows += [[cx - a / 2, cy - b / 2, cx + a / 2, cy + b / 2] for a, b in sides]
    boxes = np.array(rows) / [width, height, width, height]
    variances = np.resize(list(p.variance) or [0.1], boxes.shape)
    return np.stack([boxes.clip(0, 1) if p.clip else boxes, variances]).reshape(1, 2, -1)


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the intersection of two boxes over their union."""
    w, h = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    areas = sum(max(c[2] - c[0], 0) * max(c[3] - c[1], 0) for c in (a, b))
    return w * h / (areas - w * h) if w > 0 and h > 0 else 0


def kept(boxes: np.ndarray, limit: float) -> list[int]:
    """Return the boxes, best first, that no better kept one overlaps by more than the limit."""
    found: list[int] = []
    for i, box in enumerate(boxes):
        if all(overlap(box, boxes[j]) <= limit for j in found):
            found.append(i)
    return found


@form("DetectionOutput")
def _detection_output(layer, x, w):
    p, rows = layer.detection_output_param, []
    priors, variances = x[2].reshape(2, -1, 4)
    centre, side = (priors[:, :2] + priors[:, 2:]) / 2, priors[:, 2:] - priors[:, :2]
    for image, (codes, scores) in enumerate(zip(x[0], x[1], strict=True)):
        codes, scores, own = codes.reshape(-1, 4) * variances, scores.reshape(-1, p.num_classes), []
        mid, half = centre + codes[:, :2] * side, np.exp(codes[:, 2:]) * side / 2
        boxes = np.concatenate([mid - half, mid + half], 1)
        for label in (c for c in range(p.num_classes) if c != p.background_label_id):
            order = [
                i for i in np.argsort(-scores[:, label], kind="stable") if scores[i, label] > p.confidence_threshold
            ]
            order = order[: p.nms_param.top_k]
            best = [order[i] for i in kept(boxes[order], p.nms_param.nms_threshold)]
            own += [[image, label, scores[i, label], *boxes[i]] for i in best]
        if 0 <= p.keep_top_k < len(own):
            least = sorted((row[2] for row in own), reverse=True)[p.keep_top_k - 1]
            own = [row for row in own if row[2] >= least]
        rows += own
    return np.array(rows or [[i, *[-1] * 6] for i in range(len(x[0]))]).reshape(1, 1, -1, 7)


@form("YoloDetectionOutput")
def _yolo_detection_output(layer, x, w):
    p, (h, wide) = layer.yolo_detection_output_param, x[0].shape[2:]
    found = []
    for box, i, j in np.ndindex(p.num_box, h, wide):
        v = x[0][0].reshape(p.num_box, -1, h, wide)[box, :, i, j]
        cx, cy, chance = ((a + 1 / (1 + math.exp(-b))) for a, b in zip((j, i, 0), (v[0], v[1], v[4]), strict=True))
        a, b = math.exp(v[2]) * p.biases[2 * box] / wide / 2, math.exp(v[3]) * p.biases[2 * box + 1] / h / 2
        classes = np.exp(v[5:] - v[5:].max()) / np.exp(v[5:] - v[5:].max()).sum()
        row = [0, classes.argmax() + 1, chance * classes.max(), cx / wide - a, cy / h - b, cx / wide + a, cy / h + b]
        found += [row] if row[2] >= p.confidence_threshold else []
    rows = np.array(sorted(found, key=lambda row: -row[2]) or [[0, *[-1] * 6]])
    return rows[kept(rows[:, 3:], p.nms_threshold)].reshape(1, 1, -1, 7)


@form("Reorg")
def _reorg(layer, x, w):
    n, c, h, wide = x[0].shape
    s = layer.reorg_param.stride
    fine = x[0].reshape(n, c // (s * s), h, s, wide, s)
    return fine.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * s * s, h // s, wide // s)


@form("ShuffleChannel")
def _shuffle_channel(layer, x, w):
    n, c, *size = x[0].shape
    group = layer.shuffle_channel_param.group
    return x[0].reshape(n, group, c // group, *size).swapaxes(1, 2).reshape(x[0].shape)


@form("Upsample")
def _upsample(layer, x, w):
    p, (n, c, h, wide) = layer.upsample_param, x[0].shape
    if len(x) == 1:
        return x[0].repeat(p.scale, 2).repeat(p.scale, 3)
    size = p.upsample_h or p.scale * h - p.pad_out_h, p.upsample_w or p.scale * wide - p.pad_out_w
    y = np.zeros((n, c, size[0] * size[1]))
    np.put_along_axis(y, x[1].reshape(n, c, -1).astype(int), x[0].reshape(n, c, -1), 2)
    return y.reshape(n, c, *size)


@form("Interp")
def _interp(layer, x, w):
    p, (height, width) = layer.interp_param, x[0].shape[2:]
    sizes = []
    for size, field in ((height, "height"), (width, "width")):
        scaled = (size - 1) // p.shrink_factor * p.zoom_factor + 1
        sizes.append(getattr(p, field) or scaled)
    y = x[0]
    for axis, want in zip((2, 3), sizes, strict=True):
        have = y.shape[axis]
        at = np.arange(want) * ((have - 1) / (want - 1) if want > 1 else 0)
        low = np.minimum(at.astype(int), have - 1)
        part = (at - low).reshape(-1, *[1] * (3 - axis))
        y = y.take(low, axis) * (1 - part) + y.take(np.minimum(low + 1, have - 1), axis) * part
    return y


@form("LRN")
def _lrn(layer, x, w):
    p = layer.lrn_param
    half, squares = p.local_size // 2, x[0] ** 2
    padded = np.pad(squares, ((0, 0), (half, half), (0, 0), (0, 0)))
    sums = sum(padded[:, i : i + x[0].shape[1]] for i in range(p.local_size))
    return x[0] * (p.k + p.alpha / p.local_size * sums) ** -p.beta


@form("ArgMax")
def _argmax(layer, x, w):
    return x[0].argmax(layer.argmax_param.axis)[:, None].astype(float)


@form("Crop")
def _crop(layer, x, w):
    axis, offsets = layer.crop_param.axis, list(layer.crop_param.offset) or [0]
    found = x[0]
    for i in range(axis, x[0].ndim):
        start = offsets[min(i - axis, len(offsets) - 1)]
        found = found.take(range(start, start + x[1].shape[i]), i)
    return found


@form("Power")
def _power(layer, x, w):
    p = layer.power_param
    return (p.scale * x[0] + p.shift) ** p.power


@form("ROIPooling")
def _roi_pooling(layer, x, w):
    p = layer.roi_pooling_param
    y = np.zeros((len(x[1]), x[0].shape[1], p.pooled_h, p.pooled_w))
    for r, region in enumerate(x[1].reshape(-1, 5)):
        left, top, right, bottom = (math.floor(v * p.spatial_scale + 0.5) for v in region[1:])
        steps = max(bottom - top + 1, 1) / p.pooled_h, max(right - left + 1, 1) / p.pooled_w
        for i, j in np.ndindex(p.pooled_h, p.pooled_w):
            rows = slice(max(top + math.floor(i * steps[0]), 0), max(top + math.ceil((i + 1) * steps[0]), 0))
            columns = slice(max(left + math.floor(j * steps[1]), 0), max(left + math.ceil((j + 1) * steps[1]), 0))
            window = x[0][int(region[0]), :, rows, columns]
            y[r, :, i, j] = window.max((1, 2)) if window.size else 0
    return y


@form("PSROIPooling")
def _psroi_pooling(layer, x, w):
    p, k = layer.psroi_pooling_param, layer.psroi_pooling_param.group_size
    y = np.zeros((len(x[1]), p.output_dim, k, k))
    for r, region in enumerate(x[1].reshape(-1, 5)):
        left, top = (math.floor(v + 0.5) * p.spatial_scale for v in region[1:3])
        right, bottom = ((math.floor(v + 0.5) + 1) * p.spatial_scale for v in region[3:])
        steps = max(bottom - top, 0.1) / k, max(right - left, 0.1) / k
        for i, j in np.ndindex(k, k):
            rows = slice(max(math.floor(i * steps[0] + top), 0), max(math.ceil((i + 1) * steps[0] + top), 0))
            columns = slice(max(math.floor(j * steps[1] + left), 0), max(math.ceil((j + 1) * steps[1] + left), 0))
            window = x[0][int(region[0]), i * k + j :: k * k, rows, columns]
            y[r, :, i, j] = window.mean((1, 2)) if window.size else 0
    return y
