"""scaffe detect."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.commands.gflags import Parser
from scaffe.commands.images import add_image_flags, net_options, read_mean, swap_by_default, take_trained
from scaffe.commands.parser import add_command, add_net_flags
from scaffe.commands.running import alone, log_device, settings
from scaffe.devices import gpu
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.files.outputs import check_output, net_files
from scaffe.monitor.log import log
from scaffe.pictures.detector import Detector
from scaffe.proto import hdf5, kinds
from scaffe.proto.files import read_bytes

RANK = 15.5
LIST, SELECTIVE_SEARCH = "list", "selective_search"
EDGES = ("ymin", "xmin", "ymax", "xmax")
CSV, HDF5 = (".csv",), (".h5", ".hdf5")


def add(top: Parser) -> None:
    """Add `detect`."""
    command = add_command(top, "detect", lambda a: alone(lambda: _detect(a)), "Classify windows of images.")
    told = f".csv of windows, with the columns filename,{','.join(EDGES)}; or .txt of image files, one a line"
    command.add_argument("input", metavar="INPUT", help=told)
    command.add_argument("out", metavar="OUT", help=".csv or .h5: each window with the scores of all classes")
    text = "list: the windows of a .csv (its default); selective_search: of a Python module, for a .txt (its default)"
    command.flag("crop-mode", choices=(LIST, SELECTIVE_SEARCH), help=text)
    add_image_flags(command)
    text = "border of the input, in pixels, that shows a window's surroundings"
    command.flag("context-pad", type=int, default=16, metavar="N", help=text)
    add_net_flags(command)


def _detect(a: argparse.Namespace) -> None:
    if not a.out.lower().endswith((*CSV, *HDF5)):
        raise ScaffeError(f"{a.out}: unknown format; known: {' '.join((*CSV, *HDF5))}")
    inputs = [a.input, a.mean, *a.weights.split(","), *net_files([a.model])]
    check_output("OUT", a.out, inputs, [kinds.HDF5])
    listed = a.input.lower().endswith(CSV)
    if not listed and (a.crop_mode == LIST or not a.input.lower().endswith(".txt")):
        raise ScaffeError(
            f"{a.input}: expected a .csv file of windows, or a .txt file of images for {SELECTIVE_SEARCH}"
        )
    windows = read_windows(a.input) if listed else {name: [] for name in _lines(a.input) if name}
    detector = _detector(a)
    if (a.crop_mode or (LIST if listed else SELECTIVE_SEARCH)) == LIST:
        found = detector.detect_windows(windows.items())
    else:
        found = detector.detect_selective_search(list(windows))
    content = _as_csv(found) if a.out.lower().endswith(CSV) else _as_hdf5(found)
    write_atomically(a.out, content)
    log.info("The scores of %d windows are in %s", len(found), a.out)


def _detector(a: argparse.Namespace) -> Detector:
    given, mean = settings(a), read_mean(a.mean)
    if mean is not None and mean.ndim > 1:
        mean = np.atleast_1d(mean.mean((-2, -1)))  # of each channel, since windows come from all places
    chosen = gpu.choose(given.compute.device, a.gpu)
    log_device(chosen, given.compute.device)
    detector = Detector(a.model, a.weights, mean, **net_options(a, given.compute, chosen))
    swap_by_default(detector, a)
    take_trained(detector, a)
    detector.configure_crop(a.context_pad)
    return detector


def _lines(path: str) -> list[str]:
    try:
        return [line.strip() for line in read_bytes(path, ScaffeError).decode().splitlines()]
    except UnicodeDecodeError:
        raise ScaffeError(f"{path}: not a text file") from None


def read_windows(path: str) -> dict[str, list[np.ndarray]]:
    """Return the windows (ymin, xmin, ymax, xmax) of each image that a .csv file names.

    The file's first line names its columns, in any order. Raise ScaffeError, with the line, for a wrong one.
    """
    rows = csv.reader(_lines(path))
    columns = [name.strip() for name in next(rows, [])]
    if missing := [name for name in ("filename", *EDGES) if name not in columns]:
        raise ScaffeError(
            f"{path}: its first line must name the columns filename,{','.join(EDGES)}; missing: {missing[0]}"
        )
    windows: dict[str, list[np.ndarray]] = {}
    for row in rows:
        try:
            of = dict(zip(columns, row, strict=True))
            window = np.array([round(float(of[edge])) for edge in EDGES])
        except (ValueError, OverflowError):
            raise ScaffeError(f"{path}:{rows.line_num}: expected {','.join(columns)}, got '{','.join(row)}'") from None
        windows.setdefault(of["filename"], []).append(window)
    return windows


def _as_csv(found: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    classes = range(np.size(found[0]["prediction"]) if found else 0)
    writer.writerow(["filename", *EDGES, *(f"class{k}" for k in classes)])
    writer.writerows([one["filename"], *one["window"], *np.ravel(one["prediction"])] for one in found)
    return text.getvalue().encode()


def _as_hdf5(found: Sequence[dict[str, Any]]) -> bytes:
    """Return an HDF5 file of the datasets filename (N), window (N x 4) and prediction (N x classes)."""
    content, h5py = io.BytesIO(), hdf5.library()
    with h5py.File(content, "w") as file:
        names = [str(one["filename"]) for one in found]
        file.create_dataset("filename", data=names, dtype=h5py.string_dtype())
        file["window"] = np.array([one["window"] for one in found], np.int64).reshape(-1, len(EDGES))
        file["prediction"] = np.array([np.ravel(one["prediction"]) for one in found], np.float32)
    return content.getvalue()
