"""WindowReader: windows of images; WindowBatches: batches of random windows, to train detectors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from readers.batch_queue import Batch, BatchMemory, allocate
from readers.errors import ReaderError, RecordError, SourceError, reason
from readers.files import read_input
from readers.image import decode_image
from readers.image_reader import under
from readers.keyed import bounded, key
from readers.shard import Shard
from readers.skipping import Labels, allowed, too_many
from readers.window_file import Windows, read_windows
from readers.window_transform import WindowTransform

WINDOW, MIRROR = range(2)  # keys of a sample's random numbers


class WindowReader:
    """Reads images of the window file `source`, which has foreground and background windows, see read_windows.

    `root` is prepended to the images' names; `cache_images` keeps the files' content in memory. Raises SourceError for
    a file that can't be read or is no window file.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        root: str = "",
        fg_threshold: float = 0.5,
        bg_threshold: float = 0.5,
        cache_images: bool = False,
    ):
        self.source, self.root = os.fspath(source), root
        self._names, self.foreground, self.background = read_windows(source, fg_threshold, bg_threshold)
        self._cache: dict[int, bytes] | None = {} if cache_images else None

    def __len__(self) -> int:
        return len(self.foreground) + len(self.background)

    def image(self, number: int) -> np.ndarray:
        """Return an image (3 x H x W). Raises RecordError where it can't be read or decoded."""
        try:
            return decode_image(self._content(number), color=True)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise RecordError(reason(error)) from None

    def describe(self, image: int, line: int) -> str:
        """Return a window's name for messages: its image, and FILE:LINE of the window."""
        return f"window in image {under(self.root, self._names[image])} ({self.source}:{line})"

    def _content(self, number: int) -> bytes:
        if self._cache is not None and number in self._cache:
            return self._cache[number]
        content = read_input(under(self.root, self._names[number]))
        if self._cache is not None:
            self._cache[number] = content
        return content


class WindowBatches:
    """Fills batches with windows: the last `fg_fraction` of each global batch is foreground, the rest background.

    The window of a sample and its flip depend on the seed and the sample's number alone, not on the number of ranks. A
    window is bad where its image can't be read, where it is not inside the image, or where `labels` do not accept its
    label. A bad window raises RecordError; with `spare`, a fraction, the next good one of its kind in the file replaces
    it, and `batch.bad` has a message. Raises SourceError where there are no windows of a kind that batches need.
    """

    def __init__(
        self,
        reader: WindowReader,
        shard: Shard,
        transform: WindowTransform,
        fg_fraction: float,
        seed: int,
        spare: float | None = None,
        labels: Sequence[Labels] = (),
    ):
        self.reader, self.shard, self.transform, self.seed = reader, shard, transform, seed
        self._spare, self._labels = spare, labels
        self.shapes: list[tuple[int, ...]] = [(3, transform.crop_size, transform.crop_size), ()]
        if not 0 <= fg_fraction <= 1:
            raise ReaderError(f"expected a fg_fraction of 0 to 1, got {fg_fraction:g}")
        foreground = int(np.float32(shard.batch) * np.float32(fg_fraction))
        self._background = shard.batch - foreground  # rows of the global batch
        kinds = ("foreground", foreground, reader.foreground), ("background", self._background, reader.background)
        for kind, rows, windows in kinds:
            if rows and not len(windows):
                raise SourceError(
                    f"window file {reader.source}: a batch needs {rows} {kind} windows, but there are none"
                )

    def allocate(self, count: int, memory: BatchMemory | None = None) -> list[Batch]:
        """Return `count` batches of this rank's rows, in `memory` if given."""
        return allocate(count, self.shard.rows, self.shapes, memory)

    def fill(self, number: int, batch: Batch) -> None:
        """Draw and read this rank's part of global batch `number`.

        Raises RecordError for a bad window; with `spare` for more of them in a row than it allows.
        """
        samples = np.array(self.shard.samples(number))
        flips = bounded(key(self.seed, MIRROR, samples), 2) if self.transform.mirror else np.zeros(len(samples))
        batch.keys, batch.bad = [], []
        for row, (windows, index) in enumerate(self._draw(samples, samples - self.shard.position(number))):
            chosen = self._cut_next(windows, index, bool(flips[row]), batch.data[row], batch.bad)
            batch.keys.append(_name(windows, chosen))
            batch.label[row] = windows.labels[chosen]

    def _cut_next(self, windows: Windows, index: int, flip: bool, out: np.ndarray, bad: list[str]) -> int:
        """Write the first good window from `index` on to `out`; return its index. Append messages to `bad`."""
        spare = 0 if self._spare is None else allowed(self._spare, len(windows))
        failure = RecordError()
        for chosen in range(index, index + spare + 1):
            try:
                self._cut(windows, chosen % len(windows), flip, out)
                return chosen % len(windows)
            except RecordError as error:
                failure = error
                bad.append(str(error))
        raise failure if self._spare is None else RecordError(too_many(self._spare, spare + 1, str(failure)))

    def _cut(self, windows: Windows, index: int, flip: bool, out: np.ndarray) -> None:
        """Write a window to `out`. Raises RecordError for a bad window."""
        name = _name(windows, index)
        try:
            self.transform.apply(self.reader.image(name[0]), windows.boxes[index], flip, out)
            for labels in self._labels:
                if said := labels.refusal(windows.labels[index]):
                    raise RecordError(said)
        except RecordError as error:
            raise RecordError(f"{self.describe(name)}: {error}") from None

    def describe(self, name: Any) -> str:
        """Return a window's name for messages."""
        return self.reader.describe(*name)

    def _draw(self, samples: np.ndarray, rows: np.ndarray) -> Iterator[tuple[Windows, int]]:
        """Yield for each sample a random window of the kind of its row in the global batch."""
        words = key(self.seed, WINDOW, samples)
        for word, row in zip(words, rows.tolist(), strict=True):
            windows = self.reader.background if row < self._background else self.reader.foreground
            yield windows, int(bounded(word, len(windows)))


def _name(windows: Windows, index: int) -> tuple[int, int]:
    """Return a window's key for `describe`: its image and its line in the file."""
    return int(windows.images[index]), int(windows.lines[index])
