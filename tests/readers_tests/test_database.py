"""Databases: a file that is added to the package is opened by its source, and all kinds keep the same promises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import readers
from readers import RecordError, SourceError, compute_image_mean, database, encode, open_database, write_lmdb
from readers.database import Database, kinds, register
from readers.sharded_lmdb import shard_name
from readers.survey import survey

FOLDER_OF_ARRAYS = '''
"""Records of a folder of .array files (NumPy's format), an image (C x H x W) each; names end in -LABEL.array."""

import re
from glob import glob

import numpy as np

from readers.database import Database, register
from readers.errors import RecordError

NAME = re.compile(r".*-(\\d+)\\.array$")


@register
class FolderOfArrays(Database):
    name = "folder of arrays"
    mark = "*-LABEL.array (a folder of arrays)"

    @classmethod
    def opens(cls, source):
        return bool(glob(f"{source}/*-*.array"))

    def __init__(self, source):
        super().__init__(source)
        self._paths = sorted(glob(f"{self.source}/*-*.array"))

    def __len__(self):
        return len(self._paths)

    def read(self, indices):
        return [(i, self._paths[i]) for i in indices]

    def decode(self, value, color=None):
        try:
            return np.load(value), int(NAME.match(value)[1])
        except ValueError as error:
            raise RecordError(str(error)) from None
'''


@pytest.fixture
def folder_of_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Drop a file into the package, as far as imports can tell, and take it out again."""
    kinds()
    place = tmp_path / "added"
    place.mkdir()
    (place / "folder_of_arrays.py").write_text(FOLDER_OF_ARRAYS)
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(place)])
    monkeypatch.setattr(database, "_registered", dict(database._registered))
    kinds.cache_clear()
    yield
    kinds.cache_clear()
    sys.modules.pop("readers.folder_of_arrays", None)


def test_a_database_of_a_file_that_is_added_is_opened(tmp_path: Path, folder_of_arrays: None) -> None:
    images = np.random.RandomState(0).randint(0, 256, (5, 3, 4, 6)).astype(np.uint8)
    for i, image in enumerate(images):
        with (tmp_path / f"{i}-{i % 2}.array").open("wb") as file:
            np.save(file, image)
    with open_database(tmp_path) as source:
        assert type(source).__name__ == "FolderOfArrays" and len(source) == 5
        [(key, value)] = source.read([3])
        image, label = source.decode(value)
        assert (image == images[3]).all() and label == 1
        assert source.describe(key) == f"{tmp_path}: record 3"
        found = survey(source)
        assert dict(found.labels) == {0: 3, 1: 2} and next(found.lines()) == f"{tmp_path}: 5 records"
    assert (compute_image_mean(tmp_path, progress=False) == (images.sum(0) / np.float32(5)).astype(np.float32)).all()
    (tmp_path / "4-0.array").write_bytes(b"\x93NUMPY")
    with open_database(tmp_path) as source, pytest.raises(RecordError):
        source.decode(source.read([4])[0][1])


def test_where_there_is_no_database_the_error_names_what_an_added_kind_looks_for(
    tmp_path: Path, folder_of_arrays: None
) -> None:
    with pytest.raises(SourceError, match=r"data.mdb \(an LMDB\) or CURRENT .* or \*-LABEL.array .*, got one without"):
        open_database(tmp_path)
    with pytest.raises(SourceError, match="the LMDB or LevelDB or folder of arrays can't be opened: no such file"):
        open_database(tmp_path / "missing")


def test_an_added_file_is_gone_again(tmp_path: Path) -> None:
    assert "FolderOfArrays" not in {kind.__name__ for kind in kinds()}


def test_a_folder_that_two_kinds_accept_is_opened_as_the_first_of_them(tmp_path: Path) -> None:
    write_lmdb(tmp_path / "db", [(b"k", encode(np.zeros((1, 2, 2), np.uint8), 7))])
    write_lmdb(tmp_path / "db" / shard_name(0, 1), [(b"k", encode(np.zeros((1, 2, 2), np.uint8), 8))])
    (tmp_path / "db/CURRENT").touch()
    assert [kind.__name__ for kind in kinds() if kind.opens(str(tmp_path / "db"))] == [
        "LMDBReader", "LevelDBReader", "ShardedLMDB",
    ]  # fmt: skip
    with open_database(tmp_path / "db") as source:
        assert source.decode(source.read([0])[0][1])[1] == 7


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_each_kind_is_a_database_that_says_when_a_source_is_not_its_own(kind: type[Database], tmp_path: Path) -> None:
    assert not kind.opens(str(tmp_path)) and not kind.opens(str(tmp_path / "missing")) and not kind.opens("")


def test_two_modules_can_not_register_one_name() -> None:
    first = kinds()[0]
    mine = type(first.__name__, (Database,), {"__module__": "readers.mine"})
    with pytest.raises(ValueError, match=rf"{first.__module__} and readers\.mine both register database"):
        register(mine)
    assert database._registered[first.__name__] is first
