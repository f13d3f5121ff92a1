"""A contact sheet: one picture with images of a database and their labels."""

from __future__ import annotations

import io
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.database import Database
from readers.errors import RecordError, SourceError, reason
from readers.files import replace_file
from readers.keyed import key, permute

if TYPE_CHECKING:
    from PIL import Image

CELL = 96  # greatest width and height of an image, pixels
GAP = 10
TEXT = 16  # height of a line of text, pixels
INK, PAPER, BAD = (40, 40, 40), (255, 255, 255), (200, 30, 30)


def draw_contact_sheet(source: Database, out: str | os.PathLike[str], count: int = 60, rgb: bool = False) -> None:
    """Draw `count` random images of a database to the PNG file `out`. A bad record is an empty red box.

    Channels are B G R, Caffe's order, or R G B with `rgb`. Raises SourceError if `out` can't be written.
    """
    if not os.fspath(out).lower().endswith(".png"):
        raise SourceError(f"{out}: expected the name of a .png file")
    count = min(count, len(source))
    # Random places: equal steps may select the same classes again and again.
    places = np.sort(permute(key(0), np.arange(count), len(source)))
    items: list[tuple[Any, Any]] = [*source.read(places.tolist())]
    title = f"{os.path.basename(os.path.normpath(source.source))}: {count:,} of {len(source):,} records"
    sheet = _Sheet(title, count)
    for number, (_, value) in enumerate(items):
        try:
            image, label = source.decode(value)
            sheet.add(number, _picture(image, rgb), str(label))
        except RecordError:
            sheet.add_bad(number)
    _save(sheet.paper, out)


class _Sheet:
    """Rows of cells under a title, with about 1.5 times as many columns as rows."""

    def __init__(self, title: str, count: int):
        from PIL import Image, ImageDraw, ImageFont

        self.font = ImageFont.load_default(13)
        self.columns = min(count, math.ceil(math.sqrt(1.5 * count)))
        rows = -(-count // self.columns)
        width = max(self.columns * (CELL + GAP), math.ceil(self.font.getlength(title)) + GAP)
        self.paper = Image.new("RGB", (GAP + width, 2 * GAP + TEXT + rows * (CELL + GAP + TEXT)), PAPER)
        self._draw = ImageDraw.Draw(self.paper)
        self._draw.text((GAP, GAP), title, INK, self.font)

    def add(self, number: int, picture: Image.Image, label: str) -> None:
        """Draw a picture and its label in the middle of a cell."""
        x, y = self._corner(number)
        self.paper.paste(picture, (x + (CELL - picture.width) // 2, y + (CELL - picture.height) // 2))
        self._write(number, label, INK)

    def add_bad(self, number: int) -> None:
        """Mark a cell whose record is bad."""
        x, y = self._corner(number)
        self._draw.rectangle((x, y, x + CELL - 1, y + CELL - 1), outline=BAD)
        self._write(number, "bad", BAD)

    def _corner(self, number: int) -> tuple[int, int]:
        row, column = divmod(number, self.columns)
        return GAP + column * (CELL + GAP), 2 * GAP + TEXT + row * (CELL + GAP + TEXT)

    def _write(self, number: int, text: str, ink: tuple[int, int, int]) -> None:
        x, y = self._corner(number)
        self._draw.text((x + CELL / 2, y + CELL + 1), text, ink, self.font, anchor="ma")


def _picture(image: np.ndarray, rgb: bool) -> Image.Image:
    """Return an image (C x H x W) as a picture that fits a cell. Small images are enlarged by an integer factor."""
    from PIL import Image

    colours = image[:3] if len(image) >= 3 else image[:1]
    if colours.dtype != np.uint8:
        low, high = float(colours.min()), float(colours.max())
        colours = ((colours - low) * (255 / max(high - low, 1e-30))).astype(np.uint8)
    if len(colours) == 3 and not rgb:
        colours = colours[::-1]
    picture = Image.fromarray(colours[0] if len(colours) == 1 else np.ascontiguousarray(colours.transpose(1, 2, 0)))
    longest = max(picture.size)
    if longest <= CELL // 2:
        scale = CELL // longest
        return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
    size = [max(1, round(length * CELL / longest)) for length in picture.size]
    return picture.resize((size[0], size[1]), Image.Resampling.LANCZOS)


def _save(sheet: Image.Image, out: str | os.PathLike[str]) -> None:
    file = io.BytesIO()
    sheet.save(file, "PNG")
    try:
        replace_file(out, file.getvalue())
    except OSError as error:
        raise SourceError(f"{out}: can't be written: {reason(error)}") from None
