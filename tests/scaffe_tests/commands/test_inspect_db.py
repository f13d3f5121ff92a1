"""scaffe inspect-db: what it says of a database, good or bad."""

from __future__ import annotations

import re

import lmdb
import nets
import pytest
from PIL import Image

from scaffe.cli import main


@pytest.fixture
def db(tmp_path):
    nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    return tmp_path / "db"


def test_a_good_database_is_told_and_drawn(db, capsys):
    assert main(["inspect-db", str(db), "--plot", str(db.parent / "sheet.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{db}: 20 records, ")
    assert "Shape 1 x 4 x 4, raw: 20" in lines
    assert lines[-1] == "All records decode."
    with Image.open(db.parent / "sheet.png") as sheet:
        assert len(sheet.getcolors(1 << 20)) > 20


def test_bad_records_are_named_and_the_exit_code_says_so(db, capsys):
    with lmdb.open(str(db), lock=False) as environment, environment.begin(write=True) as transaction:
        for key in (b"00000003", b"00000011"):
            transaction.put(key, transaction.get(key)[:9])
    assert main(["inspect_db", str(db)]) == 2
    out, error = capsys.readouterr()
    assert re.findall(r"Bad: .*db: record '(\d+)': ", out) == ["00000003", "00000011"]
    assert "2 of 20 records are bad" in out
    assert error.startswith(f"scaffe: 2 of 20 records are bad; the first: {db}: record '00000003': ")
