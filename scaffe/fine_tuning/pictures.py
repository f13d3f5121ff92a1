"""Pictures and their classes: found in folders or a list, looked at, and divided into those to train and to test on."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from readers import ReaderError, decode_image, resize
from readers.files import read_input
from readers.image_reader import under
from scaffe.errors import ScaffeError
from scaffe.fine_tuning.bundle import is_bundle
from scaffe.monitor.log import log

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".jp2")
LEAST = 2  # pictures of a class: one to train on, one to test on
SAMPLED = 500  # pictures that the mean is computed of, at most
ROUND = 20  # of tests with more pictures, so that whole batches cover them exactly


class Picture(NamedTuple):
    """A file, by its path below the root, and the index of its class."""

    path: str
    label: int


class Pictures(NamedTuple):
    """The names of the classes, in the order of their labels, and pictures, whose paths count from `root`."""

    root: str
    classes: list[str]
    files: list[Picture]


class Look(NamedTuple):
    """What was seen of the pictures: whether all are grey, and the median of their height and width."""

    grey: bool
    side: int


def find(source: str) -> Pictures:
    """Return the pictures of a folder, of which each folder is a class, or of a list of lines FILE CLASS.

    Classes are in the order of their names, or of numbers where all are numbers. Raise ScaffeError where there are
    none.
    """
    if os.path.isdir(source):
        try:
            root, named = source, list(_of_folders(source))
        except OSError as error:
            raise ScaffeError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    elif os.path.isfile(source):
        root, named = os.path.dirname(source), list(_of_list(source))
    else:
        raise ScaffeError(f"{source}: no such folder, or list of pictures")
    for path, name in named:
        _check_names(path, name)
    names = {name for _, name in named}
    classes = sorted(names)
    if all(name.isdecimal() for name in names):
        classes.sort(key=int)
    if len(classes) < 2:
        have = f"there is one, '{classes[0]}'" if classes else "there is none"
        raise ScaffeError(f"{source}: expected a folder of pictures for each of several classes, but {have}")
    index = {name: label for label, name in enumerate(classes)}
    return Pictures(root, classes, [Picture(path, index[name]) for path, name in named])


def _check_names(path: str, name: str) -> None:
    """Raise ScaffeError for a picture or class that no line of a list, or of labels, can name."""
    if set("\n\r") & set(path + name) or path[0].isspace():
        raise ScaffeError(f"{path!r}: a list can't name a file with a line break, or a blank before it; rename it")
    check_utf_8(name)


def check_utf_8(name: str) -> None:
    """Raise ScaffeError for a name whose bytes are no UTF-8, which the files of a classifier need."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ScaffeError(f"{os.fsencode(name)!r}: the name is not UTF-8; rename it") from None


def _of_folders(source: str) -> Iterator[tuple[str, str]]:
    """Iterate over paths below `source` and names of classes, in order; earlier results there are no classes."""
    with os.scandir(source) as entries:
        names = sorted(one.name for one in entries if one.is_dir() and not one.name.startswith("."))
    for name in names:
        if is_bundle(os.path.join(source, name)):
            log.warning("%s is left out: it holds a classifier", os.path.join(source, name))
            continue
        found = False
        for folder, folders, files in os.walk(os.path.join(source, name), onerror=_raise):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for file in sorted(files):
                if file.lower().endswith(SUFFIXES) and not file.startswith("."):
                    found = True
                    yield os.path.relpath(os.path.join(folder, file), source), name
        if not found:
            log.warning("%s is left out: it holds no pictures", os.path.join(source, name))


def _raise(error: OSError) -> None:
    raise error


def _of_list(source: str) -> Iterator[tuple[str, str]]:
    """Iterate over the files and classes of a list. Raise ScaffeError for another line."""
    try:
        lines = read_input(source).decode(errors="surrogateescape").splitlines()
    except OSError as error:
        raise ScaffeError(f"{source}: {(error.strerror or str(error)).lower()}") from None
    for number, line in enumerate(lines, 1):
        path, _, name = line.strip().rpartition(" ")
        if line.strip():
            if not path or "\0" in line:
                raise ScaffeError(f"{source}:{number}: expected 'FILE CLASS', got {line.strip()[:80]!r}")
            yield path.strip(), name


def look(pictures: Pictures) -> tuple[Pictures, Look]:
    """Return the pictures that can be decoded, and what was seen; a line of the log names each other one.

    Raise ScaffeError for a class of which fewer than two are left.
    """
    with ThreadPoolExecutor() as threads:
        seen = list(threads.map(lambda one: _seen(under(pictures.root, one.path)), pictures.files))
    kept = [one for one, found in zip(pictures.files, seen, strict=True) if isinstance(found, tuple)]
    for one, found in zip(pictures.files, seen, strict=True):
        if isinstance(found, str):
            log.warning("%s is left out: %s", under(pictures.root, one.path), found)
    counts = np.bincount([one.label for one in kept], minlength=len(pictures.classes))
    for name, count in zip(pictures.classes, counts, strict=True):
        if count < LEAST:
            have = "one picture" if count else "no picture that can be read"
            raise ScaffeError(
                f"class '{name}' has {have}; give at least {LEAST}, of which one is held out, or take the class away"
            )
    shapes = [found for found in seen if isinstance(found, tuple)]
    side = int(np.median([shape[1:] for shape in shapes]))
    return pictures._replace(files=kept), Look(all(shape[0] == 1 for shape in shapes), side)


def _seen(path: str) -> tuple[int, ...] | str:
    """Return the shape of a picture's pixels (C x H x W), C being 1 where it is grey, or why it can't be decoded."""
    try:
        pixels = decode_image(read_input(path))
    except (OSError, ReaderError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    return (1 if _is_grey(pixels) else len(pixels), *pixels.shape[1:])


def _is_grey(pixels: np.ndarray) -> bool:
    return len(pixels) == 1 or bool((pixels[0] == pixels[1]).all() and (pixels[0] == pixels[2]).all())


def split(pictures: Pictures, share: float, seed: int) -> tuple[list[Picture], list[Picture]]:
    """Return the pictures to train on, and those held out, about this share of each class and at least one.

    The choice depends on the seed and the pictures. Tests of many pictures have a multiple of ROUND.
    """
    rng = np.random.default_rng(seed)
    of_class = defaultdict(list)
    for one in pictures.files:
        of_class[one.label].append(one)
    drawn = {label: [files[i] for i in rng.permutation(len(files))] for label, files in sorted(of_class.items())}
    counts = {label: min(max(1, round(share * len(files))), len(files) - 1) for label, files in drawn.items()}
    while sum(counts.values()) > ROUND and sum(counts.values()) % ROUND:
        largest = max(counts, key=lambda label: counts[label] / len(drawn[label]))
        if counts[largest] == 1:
            break
        counts[largest] -= 1
    held = [one for label, files in drawn.items() for one in files[: counts[label]]]
    train = [one for label, files in drawn.items() for one in files[counts[label] :]]
    return [train[i] for i in rng.permutation(len(train))], held


def mean_of(root: str, files: Sequence[Picture], size: tuple[int, int], grey: bool) -> list[float]:
    """Return the mean of each channel (B G R, or grey) over up to SAMPLED pictures of this size (height, width)."""
    step = max(1, len(files) // SAMPLED)

    def channels(one: Picture) -> np.ndarray:
        pixels = decode_image(read_input(under(root, one.path)), color=not grey)
        means: np.ndarray = resize(pixels, *size).mean((1, 2))
        return means

    with ThreadPoolExecutor() as threads:
        means = np.mean(list(threads.map(channels, files[::step])), 0)
    return [round(float(mean), 3) for mean in means]
