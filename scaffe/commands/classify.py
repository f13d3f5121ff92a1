"""scaffe classify."""

from __future__ import annotations

import argparse
import os
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

import readers
from scaffe import io
from scaffe.classifier import Classifier
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command, add_instances, add_net_flags
from scaffe.commands.running import alone, log_device, open_crew, settings, stages
from scaffe.compute import FIXED, Compute
from scaffe.context import TEST
from scaffe.devices import gpu
from scaffe.devices.threads import limit_blas
from scaffe.errors import ScaffeError
from scaffe.monitor.log import one_line
from scaffe.net import Net
from scaffe.parallel.evaluate import run_each
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.shared_parameters import share
from scaffe.proto.files import read_bytes

RANK = 15


def add(top: Parser) -> None:
    """Add `classify`."""
    text = "Print the likeliest classes of images."
    command = add_command(top, "classify", lambda a: alone(lambda: _classify(a)), text)
    command.add_argument("images", metavar="IMAGE", nargs="+")
    command.flag("model", required=True, metavar="FILE", help="deploy net prototxt")
    command.flag("weights", required=True, metavar="FILE", help=".caffemodel")
    command.flag("mean", metavar="FILE|B,G,R", help="to subtract: a .binaryproto or .npy file, or a number a channel")
    command.flag("labels", metavar="FILE", help="names of the classes, one a line")
    command.flag("images-dim", type=_dims, metavar="H,W", help="size to crop from (default: the net's input's)")
    command.flag("raw-scale", type=float, default=255.0, metavar="X", help="of pixels from 0 to 1, before the mean")
    command.flag("input-scale", type=float, metavar="X", help="after the mean, as transform_param's scale")
    command.flag("channel-swap", type=_order, metavar="I,J,K", help="of R,G,B (default for three channels: 2,1,0)")
    command.flag("gray", action="store_true", help="read images as one grey channel")
    command.flag("center-only", action="store_true", help="one crop of the middle, not the mean over ten")
    command.flag("top", type=int, default=5, metavar="N", help="classes to print for each image")
    add_net_flags(command)
    add_instances(command)


def _dims(text: str) -> tuple[int, int]:
    height, _, width = text.partition(",")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise ArgumentTypeError(f"expected H,W such as 256,256, got '{text}'")
    return int(height), int(width)


def _order(text: str) -> tuple[int, ...]:
    places = text.split(",")
    if sorted(places) != [str(i) for i in range(len(places))]:
        raise ArgumentTypeError(f"expected an order of channels such as 2,1,0, got '{text}'")
    return tuple(map(int, places))


def _classify(a: argparse.Namespace) -> None:
    if a.top < 1:
        raise ScaffeError(f"--top must be 1 or more, got {a.top}")
    images = [io.load_image(path, not a.gray) for path in a.images]
    labels = _labels(a.labels) if a.labels else None
    scores = _scores(a, images, _mean(a.mean) if a.mean else None)
    if labels is not None and len(labels) != scores.shape[1]:
        raise ScaffeError(f"{a.labels}: {len(labels)} labels for a net with {scores.shape[1]} outputs")
    for path, row in zip(a.images, scores, strict=True):
        print(one_line(f"---------- Prediction for {path} ----------"))
        for k in np.argsort(-row, kind="stable")[: a.top]:
            print(one_line(f'{row[k]:.4f} - "{labels[k] if labels else k}"'))


def _scores(a: argparse.Namespace, images: Sequence[np.ndarray], mean: np.ndarray | None) -> np.ndarray:
    """Return the scores of all classes for each image (N x classes)."""
    given = settings(a)
    chosen = gpu.choose(given.compute.device, a.gpu)
    log_device(chosen, given.compute.device)
    crew = open_crew(given.instances, chosen)
    if crew is None:
        return _classifier(a, mean, given.compute, chosen).predict(images, not a.center_only)
    with crew:
        return _divided(a, images, mean, given.compute, crew)


def _divided(
    a: argparse.Namespace, images: Sequence[np.ndarray], mean: np.ndarray | None, compute: Compute, crew: Crew
) -> np.ndarray:
    """Return the scores, the batches of crops divided over a crew's instances, which share the parameters."""
    threads = [compute.threads or len(place.cores) for place in crew.places]
    limit_blas(threads[0])

    def build(instance: int) -> Net:
        mine = replace(compute, threads=threads[instance])
        if not instance:
            return _classifier(a, mean, mine, None)
        return Net(a.model, TEST, compute=replace(mine, plan=FIXED), level=a.level, stages=stages(a))

    nets = crew.build(build)
    classifier = cast(Classifier, nets[0])
    for first in share(crew.places, nets)[1:]:
        first.packed.set_data(classifier.packed.data)
    for net in nets:
        net.context.choices = classifier.context.choices
    batches = classifier.batches(classifier.crops(images, not a.center_only))
    numbers = [range(i, len(batches), len(nets)) for i in range(len(nets))]
    scores = run_each(nets, crew, numbers, lambda net, number: classifier.scores(batches[number], net))
    return classifier.means(scores, len(images))


def _classifier(a: argparse.Namespace, mean: np.ndarray | None, compute: Compute, chosen: gpu.Gpu | None) -> Classifier:
    swap = a.channel_swap or (None if a.gray else (2, 1, 0))
    return Classifier(
        a.model, a.weights, a.images_dim, mean, a.input_scale, a.raw_scale, swap,
        compute=compute, level=a.level, stages=stages(a), gpu=chosen,
    )  # fmt: skip


def _labels(path: str) -> list[str]:
    try:
        return read_bytes(path, ScaffeError).decode().splitlines()
    except UnicodeDecodeError:
        raise ScaffeError(f"{path}: not a text file; expected the names of the classes, one a line") from None


def _mean(given: str) -> np.ndarray:
    """Return the mean that --mean names: an image (K x H x W), or a number for each channel."""
    if given.endswith(".binaryproto"):
        return readers.read_mean(given)
    if given.endswith(".npy"):
        return _array(given)
    try:
        return np.array([float(number) for number in given.split(",")], np.float32)
    except ValueError:
        exists = " (a file of another kind)" if os.path.exists(given) else ""
        expected = "expected a .binaryproto or .npy file, or a number a channel such as 104,117,123"
        raise ScaffeError(f"--mean {given}{exists}: {expected}") from None


def _array(path: str) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path)
        return values
    except OSError as error:
        raise ScaffeError(f"mean file {path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, EOFError):
        raise ScaffeError(f"mean file {path}: not a .npy file of numbers") from None
