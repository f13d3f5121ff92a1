"""A picture of some of a database's images with their labels."""

from __future__ import annotations

import io
import math
import os
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from readers.database import Database
from readers.errors import RecordError, SourceError, reason
from readers.files import replace_file

CELL = 96  # pixels that an image may take each way
GAP = 10
TEXT = 16  # pixels of a line of text
INK, PAPER, BAD = (40, 40, 40), (255, 255, 255), (200, 30, 30)


def draw_contact_sheet(source: Database, out: str | os.PathLike[str], count: int = 60, rgb: bool = False) -> None:
    """Draw `count` images, spread evenly over a database, to the PNG file `out`; a bad record is an empty red box.

    Colours are taken as B G R, Caffe's order, or as they stand with `rgb`. Raises SourceError if `out` can't be
    written.
    """
    if not os.fspath(out).lower().endswith(".png"):
        raise SourceError(f"{out}: expected the name of a .png file")
    count = min(count, len(source))
    places = [number * len(source) // count for number in range(count)]
    cells: list[tuple[Any, Any]] = [*source.read(places)]
    columns = min(count, math.ceil(math.sqrt(1.5 * count)))
    rows = -(-count // columns)
    step = CELL + GAP
    sheet = Image.new("RGB", (GAP + columns * step, 2 * GAP + TEXT + rows * (step + TEXT)), PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    title = f"{os.path.basename(os.path.normpath(source.source))}: {count:,} of {len(source):,} records"
    draw.text((GAP, GAP), title, INK, font)
    for number, (_, value) in enumerate(cells):
        row, column = divmod(number, columns)
        corner = GAP + column * step, 2 * GAP + TEXT + row * (step + TEXT)
        try:
            image, label = source.decode(value)
            picture = _picture(image, rgb)
            margin = (CELL - picture.width) // 2, (CELL - picture.height) // 2
            sheet.paste(picture, (corner[0] + margin[0], corner[1] + margin[1]))
            text, ink = str(label), INK
        except RecordError:
            draw.rectangle((*corner, corner[0] + CELL - 1, corner[1] + CELL - 1), outline=BAD)
            text, ink = "bad", BAD
        draw.text((corner[0] + CELL / 2, corner[1] + CELL + 1), text, ink, font, anchor="ma")
    _save(sheet, out)


def _picture(image: np.ndarray, rgb: bool) -> Image.Image:
    """Return an image (C x H x W) as a picture that fits a cell: small ones enlarged by whole numbers."""
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
