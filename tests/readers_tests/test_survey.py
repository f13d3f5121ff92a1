"""What is told of a database, and its contact sheet."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from readers import SourceError, encode, open_database, write_lmdb
from readers.contact_sheet import BAD, CELL, GAP, TEXT, draw_contact_sheet
from readers.survey import Survey, survey

COLOURS = {0: (250, 10, 10), 1: (10, 250, 10), 2: (10, 10, 250)}  # B G R of each label


def image_of(label: int) -> np.ndarray:
    return np.broadcast_to(np.array(COLOURS[label], np.uint8)[:, None, None], (3, 8, 8)).copy()


def png(label: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image_of(label)[::-1].transpose(1, 2, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def db(tmp_path):
    """100 records: raw, encoded, float; three of them bad."""
    values = [encode(image_of(n % 3), n % 3) for n in range(100)]
    for n in range(50, 80):
        values[n] = encode(png(n % 3), n % 3)
    values[80] = encode(image_of(2).astype(np.float32), 2)
    values[20] = values[20][:40]
    values[60] = encode(png(0)[:50], 0)
    values[99] = b""
    write_lmdb(tmp_path / "db", [(b"%08d" % n, value) for n, value in enumerate(values)])
    return tmp_path / "db"


def test_records_are_counted_and_bad_ones_named(db):
    with open_database(db) as source:
        found = survey(source, threads=2)
    assert found.records == 100
    assert found.keys == [f"{n:08d}" for n in range(5)]
    assert found.shapes == {"3 x 8 x 8, raw": 50 + 20 - 3, "3 x 8 x 8, PNG": 29, "3 x 8 x 8, float_data": 1}
    good = [n for n in range(100) if n not in (20, 60, 99)]
    assert found.labels == Counter(n % 3 for n in good)
    assert [text.split(": ")[1] for text in found.bad] == [f"record '{n:08d}'" for n in (20, 60, 99)]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_nothing(db, threads):
    with open_database(db) as source:
        assert survey(source, threads) == survey(source, 2)


def test_many_labels_are_told_in_few_lines():
    found = Survey("db", 5000, 10**7, Counter({"1 x 2 x 2, raw": 5000}), Counter(range(1000)) + Counter(range(3)))
    lines = list(found.lines())
    assert "1,000 labels, 0 to 999, with 1 to 2 records each" in lines
    assert lines[-2:] == ["  ... and 960 more", "All records decode."]
    assert lines[0] == "db: 5,000 records, 10.0 MB"


def cell(sheet: Image.Image, row: int, column: int) -> tuple[int, int, int]:
    """The colour in the middle of a cell."""
    corner = GAP + column * (CELL + GAP), 2 * GAP + TEXT + row * (CELL + GAP + TEXT)
    return sheet.getpixel((corner[0] + CELL // 2, corner[1] + CELL // 2))


@pytest.mark.parametrize("rgb", [False, True])
def test_a_contact_sheet_shows_the_images_in_their_colours(tmp_path, rgb):
    write_lmdb(tmp_path / "db", [(b"%d" % n, encode(image_of(n % 3), n % 3)) for n in range(6)])
    with open_database(tmp_path / "db") as source:
        draw_contact_sheet(source, tmp_path / "sheet.png", rgb=rgb)
    with Image.open(tmp_path / "sheet.png") as sheet:
        colours = [cell(sheet, row, column) for row in range(2) for column in range(3)]
    step = 1 if rgb else -1
    assert colours == [COLOURS[n % 3][::step] for n in range(6)]


def test_a_bad_record_is_a_red_box(tmp_path):
    write_lmdb(tmp_path / "db", [(b"a", b"no datum")])
    with open_database(tmp_path / "db") as source:
        draw_contact_sheet(source, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.getpixel((GAP, 2 * GAP + TEXT)) == BAD
        assert cell(sheet, 0, 0) == (255, 255, 255)


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 8, 8), (4, 3, 300), (3, 400, 200), (1, 1, 1), (1, 1, 5000)])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_images_of_any_shape_are_drawn(tmp_path, shape, kind):
    image = np.random.RandomState(0).randint(0, 200, shape).astype(kind)
    write_lmdb(tmp_path / "db", [(b"a", encode(image, 1)), (b"b", encode(np.zeros(shape, kind), -1))])
    with open_database(tmp_path / "db") as source:
        draw_contact_sheet(source, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height == 2 * GAP + TEXT + CELL + GAP + TEXT


@pytest.mark.parametrize(("name", "said"), [("sheet.jpg", "name of a .png"), ("no/sheet.png", "can't be written")])
def test_a_picture_that_can_not_be_written_is_told(db, tmp_path, name, said):
    with open_database(db) as source, pytest.raises(SourceError, match=said):
        draw_contact_sheet(source, tmp_path / name)
