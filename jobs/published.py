#!/usr/bin/env python3
"""Build and run published nets, and compare what they give with a plain numpy forward pass of the same weights.

    python jobs/published.py ssd300/deploy.prototxt enet.prototxt         # files that you have fetched
    python jobs/published.py --size 161 --without SegAccuracy deeplab.prototxt

Weights and inputs are random. Each blob is compared by its largest difference over its largest value. A layer that
chooses, whose result a rounding turns into another (detections, places of maxima, Python layers), gets scaffe's bottoms
in both. Prints a line a net: layers, the largest difference, and the types that take more than a tenth of the time.
Exit code 1 if a net is refused, or differs by more than 1e-3.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from google.protobuf import text_format

sys.path.insert(0, str(Path(__file__).resolve().parent))
import plain_forward  # noqa: E402

import scaffe  # noqa: E402
from readers import ReaderError  # noqa: E402
from scaffe.compute import Compute  # noqa: E402
from scaffe.errors import ScaffeError  # noqa: E402
from scaffe.proto import NetParameter  # noqa: E402
from scaffe.proto.files import read_net  # noqa: E402

CHOOSING = ("DetectionOutput", "YoloDetectionOutput", "Python", "ArgMax", "Upsample", "ROIPooling", "PSROIPooling")
MOST = 1e-3
IMAGE_INFO = "im_info"  # Faster R-CNN's height, width and scale of the picture


class Found(NamedTuple):
    """A net's layers, its largest difference and where, and the share of the time of each layer type."""

    layers: int
    difference: float
    blob: str
    shares: dict[str, float]


def read(path: str, size: int, without: Iterable[str], images: str = "") -> NetParameter:
    """Return a net with inputs of `size` x `size` pixels, unless 0, and without layers of some types.

    `images`, such as data=1x3x32x32, is an Input in the place of data layers.
    """
    net = NetParameter()
    if without or images:  # a type that scaffe does not have can have fields that it does not have
        text_format.Parse(Path(path).read_text(), net, allow_unknown_field=True)
        kept = [layer for layer in net.layer if layer.type not in without and (layer.bottom or not images)]
        del net.layer[:]
        if images:
            name, _, shape = images.partition("=")
            first = net.layer.add(name=name, type="Input", top=[name])
            first.input_param.shape.add(dim=map(int, shape.split("x")))
        net.layer.extend(kept)
        path = str(Path(path).with_suffix(".less.prototxt"))
        Path(path).write_text(text_format.MessageToString(net))
    net = read_net(path)
    for layer in net.layer:
        for shape in layer.input_param.shape:
            if len(shape.dim) == 4 and shape.dim[1] == 3 and (size or shape.dim[2] <= 1):
                shape.dim[2:] = [size or 184] * 2
    return net


def fill(net: scaffe.Net, seed: int = 0) -> None:
    """Give the parameters random values that keep the blobs near 1, and the inputs random pixels."""
    rng = np.random.default_rng(seed)
    kinds = {layer.name: layer.type for layer in net.param.layer}
    for name, blobs in net.params.items():
        for i, blob in enumerate(blobs):
            fan = max(1, blob.count // max(1, blob.shape[0]))
            if kinds[name] in ("BatchNorm", "BN", "Scale", "PReLU", "Normalize"):
                blob.data[...] = rng.uniform(0.5, 1.5, blob.shape) if i != 2 else 1
            else:
                blob.data[...] = rng.standard_normal(blob.shape) * (fan**-0.5 if i == 0 else 0.1)
    for name in net.inputs:
        blob = net.blobs[name]
        blob.data[...] = rng.uniform(-1, 1, blob.shape) if len(blob.shape) == 4 else 0
        if name == IMAGE_INFO:
            blob.data[...] = [*net.blobs["data"].shape[2:], 1]
        elif name == "rois":
            side = min(net.blobs["data"].shape[2:]) - 1
            blob.data[...] = np.reshape([0, 0, 0, side, side // 2], blob.shape)


def compare(net: scaffe.Net) -> tuple[float, str]:
    """Run the net plainly, layer by layer, and return the largest difference and its blob."""
    plain = {name: net.blobs[name].data.astype(np.float32) for name in net.inputs}
    worst, where = 0.0, ""
    for layer in net.param.layer:
        if layer.type in ("Input", "Python"):
            plain.update((top, net.blobs[top].data.astype(np.float32)) for top in layer.top)
            continue
        chooses = layer.type in CHOOSING or (layer.type == "Pooling" and len(layer.top) == 2)
        bottoms = [net.blobs[name].data.astype(np.float32) if chooses else plain[name] for name in layer.bottom]
        weights = [blob.data.astype(np.float32) for blob in net.params.get(layer.name, [])]
        tops = plain_forward.run(layer, bottoms, weights)
        plain.update(zip(layer.top, tops, strict=True))
        if chooses:
            for top in layer.top:
                worst, where = max((worst, where), (differ(plain[top], net.blobs[top].data), top))
                plain[top] = net.blobs[top].data.astype(np.float32)
    for name, values in plain.items():
        worst, where = max((worst, where), (differ(values, net.blobs[name].data), name))
    return worst, where


def differ(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference over the largest value, infinite for another shape."""
    if expected.shape != found.shape:
        return float("inf")
    largest = float(np.abs(expected).max(initial=0))
    return float(np.abs(expected - found).max(initial=0)) / max(largest, 1e-6)


def shares(net: scaffe.Net) -> dict[str, float]:
    """Return the part of a forward pass's time that each layer type takes, of the second of two passes."""
    seconds: dict[str, float] = {}
    for _ in range(2):
        seconds = {}
        for i, layer in enumerate(net.layers):
            begin = perf_counter()
            net.forward_layer(i)
            seconds[layer.type] = seconds.get(layer.type, 0) + perf_counter() - begin
    whole = sum(seconds.values())
    return {kind: part / whole for kind, part in seconds.items()}


def check(param: NetParameter, engine: str = "auto") -> Found:
    """Build a net, run it and compare it. Raise ScaffeError where it is refused."""
    net = scaffe.Net(param, scaffe.TEST, compute=Compute(engine, device="cpu", allow_python_layers=True))
    fill(net)
    net.forward()
    difference, blob = compare(net)
    return Found(len(net.layers), difference, blob, shares(net))


def line(found: Found) -> str:
    """Return what is printed of a net."""
    large: Mapping[str, float] = dict(sorted(found.shares.items(), key=lambda item: -item[1]))
    parts = ", ".join(f"{kind} {share:.0%}" for kind, share in large.items() if share >= 0.1)
    return f"{found.layers} layers, apart {found.difference:.1e} at {found.blob}; time: {parts}"


def main() -> int:
    """Check the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="deploy prototxts")
    parser.add_argument("--size", type=int, default=0, help="height and width of the inputs (default: the file's)")
    parser.add_argument("--without", action="append", default=[], metavar="TYPE", help="leave out layers of this type")
    parser.add_argument("--engine", default="auto", help="auto, reference or onednn")
    parser.add_argument("--input", default="", metavar="NAME=NxCxHxW", help="an Input in the place of data layers")
    arguments = parser.parse_args()
    failed = 0
    for path in arguments.files:
        try:
            found = check(read(path, arguments.size, arguments.without, arguments.input), arguments.engine)
            failed |= not found.difference <= MOST
            print(f"{Path(path).stem}: {line(found)}", flush=True)
        except (ScaffeError, ReaderError) as error:
            failed = 1
            print(f"{Path(path).stem}: refused: {error}", flush=True)
    return int(failed)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # not the nets' shapes
    sys.exit(main())
