"""Flags of commands that run a deploy net on images, and the nets that they ask for."""

from __future__ import annotations

import argparse
import io
import os
from argparse import ArgumentTypeError
from typing import Any

import numpy as np

import readers
from readers.files import open_input
from scaffe.commands.gflags import Parser
from scaffe.commands.running import stages
from scaffe.compute import Compute
from scaffe.devices import gpu
from scaffe.engines import create
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.log import log
from scaffe.pictures.images_net import PIXELS, ImagesNet
from scaffe.pictures.input_transform import chosen, mean_of, text_of

B_G_R = (2, 1, 0)  # of R G B


def add_image_flags(command: Parser, required: bool = True) -> None:
    """Add the net's files and how images become its input, also by the names of pycaffe's scripts."""
    command.flag("model", others=["model-def"], required=required, metavar="FILE", help="deploy net prototxt")
    command.flag("weights", others=["pretrained-model"], required=required, metavar="FILE", help=".caffemodel")
    text = "to subtract: a .binaryproto or .npy file, or a number a channel"
    command.flag("mean", others=["mean-file"], metavar="FILE|B,G,R", help=text)
    command.flag("raw-scale", type=float, default=PIXELS, metavar="X", help="of pixels from 0 to 1, before the mean")
    command.flag("input-scale", type=float, metavar="X", help="after the mean, as transform_param's scale")
    command.flag("channel-swap", type=_order, metavar="I,J,K", help="of R,G,B (default for three channels: 2,1,0)")


def _order(text: str) -> tuple[int, ...]:
    places = text.split(",") if text else []
    if sorted(places) != [str(i) for i in range(len(places))]:
        raise ArgumentTypeError(f"expected an order of channels such as 2,1,0, got '{text}'")
    return tuple(map(int, places))


def net_options(a: argparse.Namespace, compute: Compute, chosen: gpu.Gpu | None) -> dict[str, Any]:
    """Return the arguments of an ImagesNet that the flags give, all but the mean."""
    return dict(
        input_scale=a.input_scale, raw_scale=a.raw_scale, channel_swap=a.channel_swap or None,
        engine=create(compute, chosen), level=a.level, stages=stages(a),
    )  # fmt: skip


def swap_by_default(net: ImagesNet, a: argparse.Namespace) -> None:
    """Make a net of three channels take B G R, unless --channel-swap is given."""
    if a.channel_swap is None and net.blobs[net.input].shape[1] == len(B_G_R):
        net.transformer.set_channel_swap(net.input, B_G_R)


def take_trained(net: ImagesNet, a: argparse.Namespace) -> None:
    """Prepare images as those that the weights were trained with, where no flag says how; log what is taken."""
    trained = chosen(net.trained)
    if trained is None or a.raw_scale != PIXELS:  # a flag whose mean and scale are others
        return
    taken = []
    if a.input_scale is None and trained.transform_param.scale != 1:
        net.transformer.set_input_scale(net.input, trained.transform_param.scale)
        taken.append(f"scale {trained.transform_param.scale:g}")
    if not a.mean and (mean := mean_of(trained)).any():
        if len(mean) not in (1, net.blobs[net.input].shape[1]):
            return
        net.transformer.set_mean(net.input, mean)
        of = f", the channels' means of {trained.transform_param.mean_file}" if trained.mean else ""
        taken.append(f"mean {text_of(mean)}{of}")
    if taken:
        flags = "--input-scale and --mean give others"
        log.info("As %s was trained, images are prepared with %s; %s", a.weights, "; ".join(taken), flags)


def read_mean(given: str | None) -> np.ndarray | None:
    """Return the mean that --mean names: an image (K x H x W), or a number for each channel; None for none."""
    if not given:
        return None
    if given.endswith(".binaryproto"):
        return readers.read_mean(given)
    if given.endswith(".npy"):
        return read_array(given, "mean file")
    try:
        return np.array([float(number) for number in given.split(",")], np.float32)
    except ValueError:
        exists = " (a file of another kind)" if os.path.exists(given) else ""
        expected = "expected a .binaryproto or .npy file, or a number a channel such as 104,117,123"
        raise ScaffeError(f"--mean {given}{exists}: {expected}") from None


def read_array(path: str, what: str) -> np.ndarray:
    """Return the array of a .npy file; `what` it is stands in errors."""
    try:
        with open_input(path) as file:
            values: np.ndarray = np.load(file)
        return values
    except OSError as error:
        raise ScaffeError(f"{what} {path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, EOFError):
        raise ScaffeError(f"{what} {path}: not a .npy file of numbers") from None


def write_array(path: str, values: np.ndarray) -> None:
    """Write a .npy file, which appears complete or not at all."""
    content = io.BytesIO()
    np.save(content, values)
    write_atomically(path, content.getvalue())
