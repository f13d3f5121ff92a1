"""What kernels.py measures: passes of layers, conversions, updates and additions, with the bytes that they must move.

The layers are those of the model zoo between convolutions. In float32 their blobs are plain; in tf32 and bf16 they lie
channels last, as float32 and as bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from google.protobuf import text_format

import scaffe
from scaffe import engines, solvers
from scaffe.blobs.packed import PackedParameters
from scaffe.compute import Compute
from scaffe.engines.cuda import Cuda, layouts
from scaffe.engines.cuda.cudnn import Problem
from scaffe.engines.cuda.folding import Folding
from scaffe.engines.cuda.forms import TYPES, last_shape
from scaffe.engines.cuda.typed_blobs import TypedBlobs, TypedLayer
from scaffe.proto import NetParameter, SolverParameter

ELEMENTS = 1 << 26  # of the largest blob, at least: 128 MiB in bfloat16, more than a GPU's cache
PERIOD = 1_000_003  # of random numbers
BF16 = layouts.BF16
FORMS = {"float32": "float32", "tf32": "float32 NHWC", "bf16": "bf16 NHWC"}  # of blobs, by the products' numbers
Wanted = Callable[[str], bool]  # whether cases of that name are measured


class Case(NamedTuple):
    """Work to be timed, and the bytes that it must move."""

    name: str
    work: Callable[[], object]
    nbytes: int


class Layers(NamedTuple):
    """Layers, the sizes C x H x W of x, and the blobs that each pass reads and writes, such as "2x y w" for twice x.

    `w`, of the size of y, is a maximum's place: 4 bytes, or 1 channels last. BatchNorm reads x twice, and backward
    the gradient too. Inputs have the shape of x, or so many channels; `ends` are the last tops.
    """

    name: str
    text: str
    sizes: Sequence[tuple[int, int, int]]
    forward: str = ""
    backward: str = ""
    inputs: Mapping[str, int] = {"x": 0}
    ends: str = "y"


def _layer(kind: str, param: str = "", bottoms: str = "x", tops: str = "y") -> str:
    ends = " ".join([f'bottom: "{name}"' for name in bottoms.split()] + [f'top: "{name}"' for name in tops.split()])
    return f'layer {{ name: "{kind} {tops}" type: "{kind}" {ends} {param} }}\n'


def _pool(fields: str) -> str:
    return _layer("Pooling", f"pooling_param {{ {fields} }}")


def _normalised(top: str) -> str:
    """Return a BatchNorm of x into `top`, and a Scale in place."""
    return _layer("BatchNorm", "", "x", top) + _layer("Scale", "scale_param { bias_term: true }", top, top)


RELU = _layer("ReLU", "", "y")
SLICE = "slice_param { slice_point: 64 slice_point: 192 slice_point: 224 }"
PARTS = {"a": 64, "b": 128, "c": 32, "d": 32}  # channels, as of GoogLeNet's inception (3a)
PAIR = {"x": 0, "z": 0}
ZOO = [
    Layers("LRN", _layer("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"),
           [(96, 55, 55), (256, 27, 27), (64, 56, 56), (192, 56, 56)], "x y", "2x y"),
    Layers("Pooling MAX 3x3 s2", _pool("pool: MAX kernel_size: 3 stride: 2"),
           [(96, 55, 55), (256, 27, 27), (64, 112, 112), (480, 28, 28)], "x y w", "x y w"),
    Layers("Pooling MAX 2x2 s2", _pool("pool: MAX kernel_size: 2 stride: 2"),
           [(64, 224, 224), (256, 56, 56)], "x y w", "x y w"),
    Layers("Pooling MAX 3x3 s1 p1", _pool("pool: MAX kernel_size: 3 stride: 1 pad: 1"),
           [(192, 28, 28), (512, 14, 14)], "x y w", "x y w"),
    Layers("Pooling AVE 3x3 s2", _pool("pool: AVE kernel_size: 3 stride: 2"),
           [(32, 16, 16), (96, 55, 55)], "x y", "x y"),
    Layers("Pooling AVE 5x5 s3", _pool("pool: AVE kernel_size: 5 stride: 3"), [(512, 14, 14)], "x y", "x y"),
    Layers("Pooling AVE 7x7 global", _pool("pool: AVE global_pooling: true"),
           [(1024, 7, 7), (2048, 7, 7)], "x y", "x y"),
    Layers("ReLU", _layer("ReLU"), [(96, 55, 55), (256, 56, 56)], "x y", "2x y"),
    Layers("BatchNorm", _layer("BatchNorm"), [(64, 112, 112), (256, 56, 56), (2048, 7, 7)], "2x y", "3x 2y"),
    Layers("Scale", _layer("Scale", "scale_param { bias_term: true }"), [(256, 56, 56)], "x y", "2x y"),
    Layers("BatchNorm+Scale+ReLU", _normalised("y") + RELU,
           [(64, 112, 112), (64, 56, 56), (256, 28, 28), (512, 7, 7)], "2x y", "3x 2y"),
    Layers("BatchNorm+Scale+Eltwise+ReLU", _normalised("a") + _layer("Eltwise", "", "z a") + RELU,
           [(256, 56, 56), (2048, 7, 7)], "2x z y", "3x 2y 4y", PAIR),  # the sum: y, dy, and both bottoms' gradients
    Layers("Eltwise", _layer("Eltwise", "", "x z"), [(256, 56, 56)], "x z y", "4x", PAIR),
    Layers("Split", _layer("Split", "", "x", "y z"), [(256, 56, 56)], "", "3x", ends="y z"),
    Layers("Slice", _layer("Slice", SLICE, "x", "y b c d"), [(256, 28, 28)], "2x", "2x", ends="y b c d"),
    Layers("Concat", _layer("Concat", "", "a b c d"), [(256, 28, 28)], "2y", "2y", PARTS),
]  # fmt: skip
TURNED = (3, 227, 227), (256, 6, 6), (512, 7, 7)  # AlexNet's input, and what InnerProducts of AlexNet and VGG-16 read
SUMMED = (96, 55, 55), (64, 224, 224), (256, 28, 28), (4096, 1, 1)  # maps of a bias
FIRST_LAYERS = [  # of AlexNet, and of GoogLeNet and ResNet-50
    Problem((1, 3, 227, 227), (1, 96, 55, 55), (96, 3, 11, 11), (4, 4), (0, 0), (1, 1), "bf16"),
    Problem((1, 3, 224, 224), (1, 64, 112, 112), (64, 3, 7, 7), (2, 2), (3, 3), (1, 1), "bf16"),
]
# Arrays that move in an update.
RULES = {"SGD": 5, "Nesterov": 6, "AdaGrad": 6, "RMSProp": 6, "AdaDelta": 8, "Adam": 8, "LARS": 7}
PARAMETERS = [(1 << 25) + 16, *[1 << 20] * 24, *[1000] * 60]  # a large layer, some small ones, many biases: 59 million


def cases(chosen: Any, small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield all cases that are wanted."""
    yield from layers(chosen, small, wanted)
    yield from conversions(chosen, small, wanted)
    yield from updates(chosen, small, wanted)
    yield from reduces(small, wanted)


def layers(chosen: Any, small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield the passes of the layers, forward and backward."""
    for numbers, form in FORMS.items():
        for row in ZOO:
            for size in row.sizes if wanted(f"{row.name} {form}") else ():
                yield from _passes(row, numbers, _batch(size, small), chosen)


def _batch(size: tuple[int, int, int], small: bool) -> tuple[int, int, int, int]:
    """Return the shape of enough images of a size; for a rehearsal of two small ones."""
    channels, high, wide = size
    return (2, min(channels, 256), min(high, 9), min(wide, 9)) if small else (-(-ELEMENTS // prod(size)), *size)


def _passes(row: Layers, numbers: str, shape: tuple[int, ...], chosen: Any) -> Iterator[Case]:
    net = layer_net(row, numbers, shape, chosen)
    ends = [net.blobs[name] for name in row.ends.split()]
    measured = range(2 * len(row.inputs), len(net.layers) - len(ends))

    def forward() -> None:
        for i in measured:
            net.forward_layer(i)

    def backward() -> None:
        for blob in ends:  # as the layers behind have just written them
            blob.diff_values.overwritten()
        for i in reversed(measured):
            net.backward_layer(i)

    sizes = {name: blob.count * (2 if numbers == "bf16" else 4) for name, blob in net.blobs.items()}
    sizes["w"] = net.blobs["y"].count * (4 if numbers == "float32" else 1)
    for name, work, moved in (("forward", forward, row.forward), ("backward", backward, row.backward)):
        if moved:
            nbytes = sum(int(one[:-1] or 1) * sizes[one[-1]] for one in moved.split())
            yield Case(f"{row.name} {FORMS[numbers]} {'x'.join(map(str, shape))} {name}", work, nbytes)


def layer_net(row: Layers, numbers: str, shape: tuple[int, ...], chosen: Any) -> scaffe.Net:
    """Return a net of these layers over random numbers, with two layers before each input, and one behind each end.

    In tf32 and bf16 all their blobs lie channels last, as between convolutions; those of the net's ends can't.
    """
    text = "force_backward: true\n"
    for name, channels in row.inputs.items():
        dims = " ".join(f"dim: {size}" for size in (shape[0], channels or shape[1], *shape[2:]))
        text += _layer("Input", f"input_param {{ shape {{ {dims} }} }}", "", f"in_{name}")
        text += _layer("Power", "", f"in_{name}", name)
    text += row.text + "".join(_layer("Power", "", name, f"out_{name}") for name in row.ends.split())
    with patch.object(TypedBlobs, "choose", _all_that_may):
        param = text_format.Parse(text, NetParameter())
        net = scaffe.Net(param, scaffe.TRAIN, engine=engines.create(Compute(numbers=numbers), chosen))
        for name in row.inputs:
            fill(net.blobs[f"in_{name}"].array, chosen.xp)
        net.forward()
    for name in row.ends.split():
        fill(net.blobs[name].diff_array, chosen.xp)
        net.blobs[name].diff_values.settle()
    inner = [blob for name, blob in net.blobs.items() if not name.startswith(("in_", "out_"))]
    last = {values.home is not None for blob in inner for values in (blob.values, blob.diff_values)}
    assert last == {numbers != "float32"}, f"{row.name}, {numbers}: expected all blobs in {FORMS[numbers]}"
    return net


def _all_that_may(typed: TypedBlobs) -> set[int]:
    """Return the blobs for whose form channels last a layer has kernels."""
    if typed.dtype is None:
        return set()
    ends = zip(typed.net.layers, typed.net.bottoms, typed.net.tops, strict=True)
    able = (layer.typed_blobs(bottom, top) for layer, bottom, top in ends if isinstance(layer, TypedLayer))
    return {id(blob) for blobs in able for blob in blobs}


def fill(array: Any, xp: Any) -> None:
    """Fill an array with random numbers, which repeat after a while; uint16 with the bits of bfloat16."""
    numbers = np.random.default_rng(0).standard_normal(PERIOD, np.float32)
    if array.dtype == BF16:
        numbers = (numbers.view(np.uint32) >> 16).astype(BF16)
    flat, period = array.reshape(-1), xp.asarray(numbers.astype(array.dtype))
    for start in range(0, flat.size, PERIOD):
        part = flat[start : start + PERIOD]
        part[...] = period[: part.size]


def _noise(xp: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    array = xp.empty(shape, dtype)
    fill(array, xp)
    return array


def conversions(chosen: Any, small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield turns between layouts, sums and additions of biases over maps channels last, and folded images."""
    xp = chosen.xp
    for numbers, dtype in (("tf32", np.dtype(np.float32)), ("bf16", BF16)):
        engine = Cuda(chosen, Compute(numbers=numbers))
        for size in TURNED if wanted(f"turn {FORMS[numbers]}") else ():
            n, channels, high, wide = _batch(size, small)
            first, last = _noise(xp, (n, channels, high, wide)), _noise(xp, (n, high, wide, channels), dtype)
            name, nbytes = f"{FORMS[numbers]} {n}x{channels}x{high}x{wide}", first.nbytes + last.nbytes
            yield Case(f"turn to {name}", partial(layouts.channels_last, engine, first, last), nbytes)
            yield Case(f"turn from {name}", partial(layouts.channels_first, engine, last, first), nbytes)
        for size in SUMMED if wanted(f"bias {FORMS[numbers]}") else ():
            n, channels, high, wide = _batch(size, small)
            maps, bias = _noise(xp, (n, high, wide, channels), dtype), xp.zeros((channels,), np.float32)
            name = f"bias {FORMS[numbers]} {n}x{channels}x{high}x{wide}"
            yield Case(f"{name} sums", partial(layouts.add_row_sums, engine, maps, bias), maps.nbytes)
            added = partial(layouts.finish_rows, engine, maps, xp.zeros_like(bias), True)
            yield Case(f"{name} added, ReLU", added, 2 * maps.nbytes)
            rectified = partial(layouts.add_row_sums, engine, maps, bias, where=_noise(xp, maps.shape, dtype))
            yield Case(f"{name} sums, ReLU's gradient", rectified, 3 * maps.nbytes)
        for first in FIRST_LAYERS if wanted(f"fold {FORMS[numbers]}") else ():
            yield _fold(engine, first, 2 if small else -(-ELEMENTS // prod(first.images[1:])))


def _fold(engine: Cuda, first: Problem, images: int) -> Case:
    """Return the folding of a first layer's images, channels first, into what its convolution reads."""
    of_images, of_maps = (images, *first.images[1:]), (images, *first.maps[1:])
    numbers = engine.compute.numbers
    folding = Folding.of(replace(first, images=of_images, maps=of_maps, compute=numbers))
    assert folding is not None
    target = engine.gpu.xp.empty(last_shape(folding.problem.images), TYPES[numbers])
    x = _noise(engine.gpu.xp, of_images)
    name = f"fold {FORMS[numbers]} {'x'.join(map(str, of_images))} into {'x'.join(map(str, target.shape))}"
    return Case(name, partial(folding.fold_images, engine, x, target), x.nbytes + target.nbytes)


def updates(chosen: Any, small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield an update of many parameters for each rule."""
    sizes = [min(size, 999) for size in PARAMETERS[-9:]] if small else PARAMETERS
    text = "\n".join(
        f'layer {{ name: "p{i}" type: "Parameter" top: "p{i}" parameter_param {{ shape {{ dim: {size} }} }} }}'
        for i, size in enumerate(sizes)
    )
    net = scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN, engine=engines.create(gpu=chosen))
    for array in (net.packed.data, net.packed.diff):
        fill(array, chosen.xp)
    for kind, arrays in ((kind, arrays) for kind, arrays in RULES.items() if wanted(f"update {kind}")):
        update = partial(_update, net.packed, _rule(kind, net.packed, net.engine))
        yield Case(f"update by {kind}, {sum(sizes) / 1e6:.0f} million", update, 4 * arrays * sum(sizes))


def _update(packed: PackedParameters, rule: Any) -> None:
    """Update as in an iteration, whose gradients a backward pass has just written.

    SGD and LARS copy their last update into gradients that nothing has overwritten, as Caffe shows it there.
    """
    for parameter in packed.parameters:
        parameter.blob.diff_values.overwritten()
    rule.update(range(len(packed.parameters)), 1e-6, 0)


def _rule(kind: str, packed: PackedParameters, engine: Any) -> Any:
    own = {"AdaGrad": {"momentum": 0}, "RMSProp": {"momentum": 0, "rms_decay": 0.9}}.get(kind, {})
    fields = {"type": kind, "base_lr": 1e-6, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 5e-4, "delta": 1e-6}
    return solvers.create(SolverParameter(**fields | own), packed, engine)


def reduces(small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield the additions of a reduce, by the kernels of the collectives."""
    from collectives.execution.device.cuda import CudaDevice

    if small or not wanted("reduce"):
        return
    import cupy

    device = CudaDevice(cupy)
    for name, dtype in (("64 MiB", np.float32), ("256 MiB", np.float32), ("256 MiB of halves", np.float16)):
        count = int(name.split()[0]) * (1 << 20) // np.dtype(dtype).itemsize
        arrays = [_noise(cupy, (count,), dtype) for _ in range(3)]
        yield Case(f"reduce's add, {name}", partial(_add, device, arrays), 3 * arrays[0].nbytes)


def _add(device: Any, arrays: list) -> None:
    from collectives.execution.operations import OPERATIONS

    device.join(OPERATIONS["sum"], *arrays, device.current())
