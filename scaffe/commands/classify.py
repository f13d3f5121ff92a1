"""scaffe classify."""

from __future__ import annotations

import argparse
import os
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import escape, glob
from typing import cast

import numpy as np

from scaffe.commands.gflags import Parser
from scaffe.commands.images import (
    add_image_flags,
    net_options,
    read_array,
    read_mean,
    swap_by_default,
    take_trained,
    write_array,
)  # fmt: skip
from scaffe.commands.parser import add_command, add_instances, add_net_flags
from scaffe.commands.running import alone, log_device, open_crew, settings, stages
from scaffe.compute import FIXED, Compute
from scaffe.context import TEST
from scaffe.devices import gpu
from scaffe.devices.threads import limit_blas
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_output, net_files
from scaffe.fine_tuning.bundle import DEPLOY, LABELS, TRANSFORM, WEIGHTS, is_bundle, read_transform
from scaffe.monitor.log import log, one_line
from scaffe.net.net import Net
from scaffe.parallel.evaluate import run_each
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.shared_parameters import share
from scaffe.pictures import io
from scaffe.pictures.classifier import Classifier
from scaffe.proto import kinds
from scaffe.proto.files import read_bytes

RANK = 15
ARRAY = ".npy"


def add(top: Parser) -> None:
    """Add `classify`."""
    text = "Print the likeliest classes of images, or write the scores of all classes."
    command = add_command(top, "classify", lambda a: alone(lambda: _classify(a)), text)
    told = "a folder of scaffe fine-tune, then image files; with --model also folders of images, .npy files of images "
    told += "(N x H x W x K); a last OUT.npy gets the scores"
    command.add_argument("images", metavar="IMAGE", nargs="+", help=told)
    add_image_flags(command, required=False)
    command.flag("labels", metavar="FILE", help="names of the classes, one a line")
    command.flag("images-dim", type=_dims, metavar="H,W", help="size to crop from (default: the net's input's)")
    command.flag("gray", action="store_true", help="read images as one grey channel")
    command.flag("center-only", action="store_true", help="one crop of the middle, not the mean over ten")
    command.flag("top", type=int, default=5, metavar="N", help="classes to print for each image")
    command.flag("ext", default="jpg", metavar="EXT", help="which files of a folder are images")
    add_net_flags(command)
    add_instances(command)


def _dims(text: str) -> tuple[int, int]:
    height, _, width = text.partition(",")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise ArgumentTypeError(f"expected H,W such as 256,256, got '{text}'")
    return int(height), int(width)


def _classify(a: argparse.Namespace) -> None:
    if a.top < 1:
        raise ScaffeError(f"--top must be 1 or more, got {a.top}")
    _take_bundle(a)
    chosen = gpu.choose(settings(a).compute.device, a.gpu)  # before images: --gpu may have taken one as its value
    paths, out = _given(a.images)
    if out:
        inputs = [*paths, a.mean, a.labels, *a.weights.split(","), *net_files([a.model])]
        check_output("scores", out, inputs, [kinds.ARRAY])
    names, images = zip(*(pair for path in paths for pair in _load(path, a)), strict=True)
    labels = _labels(a.labels) if a.labels else None
    scores = _scores(a, images, read_mean(a.mean), chosen)
    if labels is not None and len(labels) != scores.shape[1]:
        raise ScaffeError(f"{a.labels}: {len(labels)} labels for a net with {scores.shape[1]} outputs")
    if out:
        write_array(out, scores)
        log.info("The scores of %d classes for %d images are in %s", scores.shape[1], len(images), out)
        return
    for path, row in zip(names, scores, strict=True):
        print(one_line(f"---------- Prediction for {path} ----------"))
        for k in np.argsort(-row, kind="stable")[: a.top]:
            print(one_line(f'{row[k]:.4f} - "{labels[k] if labels else k}"'))


def _take_bundle(a: argparse.Namespace) -> None:
    """Take net, weights, labels and transform of a folder that scaffe fine-tune made, if the first word names one."""
    if a.model is None and os.path.isdir(a.images[0]) and is_bundle(a.images[0]):
        folder, *a.images = a.images
        if not a.images:
            raise ScaffeError(f"{folder}: name pictures behind the classifier's folder")
        given = [flag for flag in ("weights", "mean", "input_scale", "images_dim") if getattr(a, flag) is not None]
        if given:
            raise ScaffeError(f"--{given[0].replace('_', '-')}: {folder} has its own, in {TRANSFORM}; edit it there")
        prepared = read_transform(folder)
        a.model, a.weights = os.path.join(folder, DEPLOY), os.path.join(folder, WEIGHTS)
        a.labels = a.labels or os.path.join(folder, LABELS)
        a.images_dim, a.gray, a.center_only = prepared.resize, prepared.gray, True
        a.mean, a.input_scale = ",".join(map(str, prepared.mean)), prepared.scale
    for flag in ("model", "weights"):
        if getattr(a, flag) is None:
            raise ScaffeError(f"--{flag} is missing; without it the first word is a folder that scaffe fine-tune made")


def _given(words: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Return the images' paths, and the file to write, which is the last of several words if it ends in .npy."""
    written = len(words) > 1 and words[-1].endswith(ARRAY)
    return (words[:-1], words[-1]) if written else (words, None)


def _load(path: str, a: argparse.Namespace) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over the names and pixels of the images that a file or a folder holds."""
    if path.endswith(ARRAY):
        images = read_array(path, "images")
        if images.ndim != 4 or not len(images):
            raise ScaffeError(f"images {path}: expected an array (N x H x W x K), got shape {images.shape}")
        yield from ((f"{path}[{i}]", image) for i, image in enumerate(images))
        return
    files = [path]
    if os.path.isdir(path):
        files = sorted(glob(os.path.join(escape(path), f"*.{a.ext.removeprefix('.')}")))
        if not files:
            raise ScaffeError(f"folder {path}: no file in it ends in .{a.ext.removeprefix('.')}; name another by --ext")
    yield from ((file, io.load_image(file, not a.gray)) for file in files)


def _scores(
    a: argparse.Namespace, images: Sequence[np.ndarray], mean: np.ndarray | None, chosen: gpu.Gpu | None
) -> np.ndarray:
    """Return the scores of all classes for each image (N x classes)."""
    given = settings(a)
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
    batches = list(classifier.batches(classifier.crops(images, not a.center_only)))
    numbers = [range(i, len(batches), len(nets)) for i in range(len(nets))]
    scores = run_each(nets, crew, numbers, lambda net, number: classifier.scores(batches[number], net))
    return classifier.means(scores, len(images))


def _classifier(a: argparse.Namespace, mean: np.ndarray | None, compute: Compute, chosen: gpu.Gpu | None) -> Classifier:
    net = Classifier(a.model, a.weights, a.images_dim, mean, **net_options(a, compute, chosen))
    swap_by_default(net, a)
    take_trained(net, a)
    return net


def _labels(path: str) -> list[str]:
    try:
        text = read_bytes(path, ScaffeError).decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ScaffeError(f"{path}: not a text file; expected the names of the classes, one a line") from None
    return text.removesuffix("\n").split("\n") if text else []  # splitlines would part names at other marks too
