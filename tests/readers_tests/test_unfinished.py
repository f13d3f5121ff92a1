"""Databases that a kill interrupts: they appear complete or not at all, and what was finished is not done again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from readers import ReaderError, RecordError, SourceError, convert_imageset, imageset, open_database, stores, unfinished

ROOT = Path(__file__).resolve().parents[2]
COUNT = 60

KILLED = """if True:
    import os, signal, sys
    from readers import convert_imageset, unfinished

    unfinished.CHUNK_BYTES, put = 400, unfinished.ResumableWriter.put

    def put_or_die(writer, number, record):
        if number >= 42:
            os.kill(os.getpid(), signal.SIGKILL)
        put(writer, number, record)

    unfinished.ResumableWriter.put = put_or_die
    folder, shards, left_out = sys.argv[1], int(sys.argv[2]), print if sys.argv[3] == "skip" else None
    at = folder, folder + "/list.txt", folder + "/db"
    convert_imageset(*at, shards=shards, threads=1, left_out=left_out, backend=sys.argv[4])
"""


def stored(db: Path) -> list[tuple[bytes, bytes]]:
    """What py-lmdb alone finds in a database."""
    with lmdb.open(str(db), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def contents(db: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """What is in each LMDB under a folder."""
    return {str(path.relative_to(db)): stored(path.parent) for path in sorted(db.rglob("data.mdb"))}


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with many images and their list."""
    pixels = np.random.RandomState(0).randint(0, 256, (COUNT, 6, 5, 3), np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    (tmp_path / "list.txt").write_text("".join(f"{number}.png {number % 7}\n" for number in range(COUNT)))
    return tmp_path


def convert(folder: Path, db: str = "db", **settings) -> int:
    return convert_imageset(folder, folder / "list.txt", folder / db, **settings)


def kill(folder: Path, shards: int = 1, skipping: bool = False, backend: str = "lmdb") -> None:
    """Convert in a process that is killed as it stores image 42: 40 are on the disk, in transactions of four."""
    command = [sys.executable, "-c", KILLED, str(folder), str(shards), "skip" if skipping else "fail", backend]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == -9, done.stderr


def count_decoded(monkeypatch) -> list[int]:
    decoded: list[int] = []
    decode = imageset.decode_image

    def counting(content: bytes, color: bool) -> np.ndarray:
        decoded.append(1)
        return decode(content, color)

    monkeypatch.setattr(imageset, "decode_image", counting)
    return decoded


@pytest.mark.parametrize("shards", [1, 3])
def test_after_a_kill_only_the_rest_is_done_and_the_result_is_the_same(folder, monkeypatch, shards):
    kill(folder, shards)
    assert (folder / "db.unfinished").is_dir()
    assert not (folder / "db").exists()
    said: list[str] = []
    decoded = count_decoded(monkeypatch)
    assert convert(folder, shards=shards, say=said.append) == COUNT
    [line] = said
    done = int(line.split(": ")[1].split(" of ")[0])
    assert done == 40
    assert len(decoded) == COUNT - done
    assert convert(folder, "whole", shards=shards) == COUNT
    assert contents(folder / "db") == contents(folder / "whole")
    assert len(contents(folder / "db")) == shards
    assert not list(folder.glob("*.unfinished"))


def test_a_leveldb_that_a_kill_interrupts_is_continued_too(folder, monkeypatch):
    pytest.importorskip("plyvel", reason="plyvel is not installed")
    kill(folder, backend="leveldb")
    assert not (folder / "db").exists()
    with pytest.raises(SourceError, match="db.unfinished has other arguments: backend was leveldb, now it is lmdb"):
        convert(folder)
    decoded = count_decoded(monkeypatch)
    assert convert(folder, backend="leveldb") == COUNT
    assert len(decoded) == COUNT - 40
    convert(folder, "whole")
    with open_database(folder / "db") as found, open_database(folder / "whole") as whole:
        assert (type(found).__name__, len(found)) == ("LevelDBReader", COUNT)
        assert found.read(range(COUNT)) == whole.read(range(COUNT))
    assert not list(folder.glob("*.unfinished"))


def test_an_end_between_two_shards_costs_the_others_records_alone(folder, monkeypatch):
    commit, commits = stores.LMDBStore.commit, []

    def commit_once(store: stores.LMDBStore, records: list) -> None:
        if commits:
            raise OSError(28, "No space left on device")
        commits.append(records)
        commit(store, records)

    monkeypatch.setattr(stores.LMDBStore, "commit", commit_once)
    with pytest.raises(SourceError, match="db: can't be written: no space left on device"):
        convert(folder, shards=4)
    monkeypatch.undo()
    decoded = count_decoded(monkeypatch)
    convert(folder, shards=4)
    assert len(decoded) == COUNT - len(commits[0]) == COUNT * 3 // 4
    convert(folder, "whole", shards=4)
    assert contents(folder / "db") == contents(folder / "whole")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gray": True}, "gray was False, now it is True"),
        ({"shards": 2}, "shards was 1, now it is 2"),
        ({"resize_height": 4, "resize_width": 4}, "resize_height was 0, now it is 4"),
        ({"shuffle": True}, "shuffle was False, now it is True"),
    ],
)
def test_other_arguments_are_refused_by_their_name(folder, settings, said):
    kill(folder)
    with pytest.raises(SourceError, match=f"db.unfinished has other arguments: {said}; complete it"):
        convert(folder, **settings)
    assert convert(folder) == COUNT


def test_another_list_of_the_same_name_is_refused(folder):
    kill(folder)
    (folder / "list.txt").write_text("0.png 1\n")
    with pytest.raises(SourceError, match="other arguments: sha256 of the list was"):
        convert(folder)


def test_a_bad_image_costs_nothing_that_is_finished(folder, monkeypatch):
    good = (folder / "50.png").read_bytes()
    (folder / "50.png").write_bytes(good[:60])
    said: list[str] = []
    with pytest.raises(RecordError, match=r"50\.png can't be decoded"):
        convert(folder, threads=2, say=said.append)
    assert said == [f"{folder}/db.unfinished: 48 of 60 images are kept; the same command continues there"]
    assert not (folder / "db").exists()
    (folder / "50.png").write_bytes(good)
    decoded = count_decoded(monkeypatch)
    convert(folder)
    assert len(decoded) == COUNT - 48
    assert len(stored(folder / "db")) == COUNT


def spoil(folder, numbers):
    for number in numbers:
        (folder / f"{number}.png").write_bytes((folder / f"{number}.png").read_bytes()[:60])


def test_what_a_folder_without_records_left_out_is_looked_at_again(folder, monkeypatch):
    """A kill behind the rename leaves the notes; the database may be removed, its images mended, and made anew."""
    spoil(folder, [3])
    monkeypatch.setattr(unfinished.shutil, "rmtree", lambda *args, **options: None)
    assert convert(folder, left_out=lambda said: None) == COUNT - 1
    monkeypatch.undo()
    assert json.loads((folder / "db.unfinished/left_out.json").read_text()) == [3]
    (folder / "db").rename(folder / "old")
    Image.new("RGB", (5, 6)).save(folder / "3.png")
    assert convert(folder, left_out=lambda said: None) == COUNT


@pytest.mark.parametrize("shards", [1, 3])
def test_images_that_are_left_out_stay_so_over_a_kill(folder, shards):
    bad = [0, 7, 8, 21, 50, 59]
    spoil(folder, bad)
    whole: list[str] = []
    assert convert(folder, "whole", shards=shards, left_out=whole.append) == COUNT - len(bad)
    assert [re.search(r"(\d+)\.png can't be decoded", said)[1] for said in whole] == [str(number) for number in bad]
    kill(folder, shards, skipping=True)
    notes = json.loads((folder / "db.unfinished/left_out.json").read_text())
    assert notes == bad[: len(notes)] and len(notes) >= 3
    again: list[str] = []
    assert convert(folder, shards=shards, left_out=again.append) == COUNT - len(bad)
    assert again == whole[len(notes) :]
    assert contents(folder / "db") == contents(folder / "whole")
    keys = sorted(key for part in contents(folder / "db").values() for key, _ in part)
    assert keys == [b"%08d_%d.png" % (number, number) for number in range(COUNT) if number not in bad]


def test_a_folder_without_a_good_image_is_an_error_and_leaves_nothing(folder):
    said: list[str] = []
    with pytest.raises(
        RecordError, match=r"none of 60 images can be stored; the first: image .*/nowhere/0.png: no such"
    ):
        convert_imageset(folder / "nowhere", folder / "list.txt", folder / "db", left_out=said.append)
    assert len(said) == COUNT
    assert not (folder / "db").exists() and not (folder / "db.unfinished").exists()


def test_sizes_are_checked_against_the_first_good_image(folder):
    spoil(folder, [0])
    Image.new("RGB", (5, 7)).save(folder / "1.png")
    with pytest.raises(RecordError, match=r"image .*/2\.png is 3 x 6 x 5, but the first is 3 x 7 x 5"):
        convert(folder, check_size=True, left_out=lambda said: None)


def test_two_processes_do_not_write_one_database(folder):
    with unfinished.ResumableWriter(folder / "db", 1, {}) as writer:
        with pytest.raises(SourceError, match="db.unfinished: another process is writing"):
            convert(folder)
        writer.put(0, (b"key", b"value"))
    assert stored(folder / "db") == [(b"key", b"value")]


def test_damaged_notes_are_told(folder):
    kill(folder)
    (folder / "db.unfinished/arguments.json").write_text("{")
    with pytest.raises(SourceError, match=r"arguments.json can't be read: remove .*db.unfinished to start again"):
        convert(folder)


def test_a_kill_before_the_first_record_leaves_nothing_in_the_way(folder):
    (folder / "db.unfinished/db").mkdir(parents=True)
    assert convert(folder) == COUNT
    assert len(stored(folder / "db")) == COUNT


def test_images_of_several_shapes_are_refused_where_sizes_are_checked(folder):
    Image.new("RGB", (5, 7)).save(folder / "33.png")
    with pytest.raises(RecordError, match=r"image .*/33\.png is 3 x 7 x 5, but the first is 3 x 6 x 5"):
        convert(folder, check_size=True)
    convert(folder, "other", check_size=True, resize_height=4, resize_width=4)
    assert len(stored(folder / "other")) == COUNT


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"shards": 0}, "expected 1 shard or more, got 0"),
        ({"threads": -1}, "threads must be 0 to .*, got -1"),
        ({"threads": 1_000_000}, "threads must be 0 to .*, got 1000000"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(folder, settings, said):
    with pytest.raises(ReaderError, match=said):
        convert(folder, **settings)


def test_the_number_of_threads_changes_nothing(folder):
    for threads in (1, 2, 5):
        convert(folder, f"db{threads}", threads=threads, shuffle=True, seed=3)
    assert stored(folder / "db1") == stored(folder / "db2") == stored(folder / "db5")
    assert os.listdir(folder / "db1") == ["data.mdb"]


@pytest.mark.parametrize("link", ["db.unfinished", "db.unfinished/db/data.mdb", "db.unfinished/arguments.json"])
def test_a_symbolic_link_in_unfinished_work_is_refused(folder, tmp_path, link):
    kill(folder)
    elsewhere = tmp_path / "elsewhere"
    (folder / link).rename(elsewhere)
    (folder / link).symlink_to(elsewhere)
    with pytest.raises(SourceError, match=rf"{link} is a symbolic link: remove .*db.unfinished to start again"):
        convert(folder)
    assert not (folder / "db").exists()
