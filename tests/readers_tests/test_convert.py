"""Converting, against the databases that Caffe's own tools wrote, and what stays behind when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from readers import (
    LMDBReader,
    ReaderError,
    RecordError,
    SourceError,
    compute_image_mean,
    convert_digits,
    convert_imageset,
    database_writer,
    decode,
    encode,
    stores,
    write_lmdb,
)

ROOT = Path(__file__).resolve().parents[2]


def stored(db: Path | str) -> list[tuple[bytes, bytes]]:
    """What py-lmdb alone finds in a database."""
    with lmdb.open(str(db), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def picture(path: Path, seed: int = 0, mode: str = "RGB") -> np.ndarray:
    """Save an image file and return its pixels."""
    image = Image.fromarray(np.random.RandomState(seed).randint(0, 256, (6, 5, 3), np.uint8)).convert(mode)
    image.save(path)
    return np.asarray(image)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with three images and their list."""
    for number in range(3):
        picture(tmp_path / f"{number}.png", number)
    (tmp_path / "list.txt").write_text("0.png 5\n1.png 6\n2.png 7\n")
    return tmp_path


@pytest.mark.parametrize(
    ("theirs", "images", "settings"),
    [
        ("train_lmdb", "list.txt", {}),
        ("train_encoded_png_lmdb", "list.txt", {"encoded": True}),
        ("resized_lmdb", "list_odd.txt", {"resize_height": 24, "resize_width": 28}),
        ("gray_resized_lmdb", "list_odd.txt", {"resize_height": 24, "resize_width": 28, "gray": True}),
    ],
)
def test_a_list_becomes_the_records_that_caffe_writes(cases, tmp_path, theirs, images, settings):
    artefacts = cases / "caffe/artefacts"
    count = convert_imageset(artefacts / "images", artefacts / images, tmp_path / "db", **settings)
    assert stored(tmp_path / "db") == stored(artefacts / theirs)
    assert count == len(stored(tmp_path / "db"))


def test_images_encoded_as_jpeg_hold_the_pixels_of_caffes(cases, tmp_path):
    artefacts = cases / "caffe/artefacts"
    convert_imageset(artefacts / "images", artefacts / "list.txt", tmp_path / "db", encode_type="jpg")
    for (key, ours), (their_key, theirs) in zip(
        stored(tmp_path / "db"), stored(artefacts / "train_encoded_jpg_lmdb"), strict=True
    ):
        assert (key, decode(ours)[1]) == (their_key, decode(theirs)[1])
        np.testing.assert_array_equal(decode(ours)[0], decode(theirs)[0])


def test_the_mean_image_is_caffes_to_the_byte(cases, tmp_path):
    artefacts = cases / "caffe/artefacts"
    for source in ("train_lmdb", "train_encoded_png_lmdb"):
        compute_image_mean(artefacts / source, tmp_path / "mean.binaryproto")
        assert (tmp_path / "mean.binaryproto").read_bytes() == (artefacts / "mean.binaryproto").read_bytes()


def test_the_mean_of_float_records_is_theirs(tmp_path):
    images = np.random.RandomState(0).rand(9, 2, 3, 4).astype(np.float32)
    write_lmdb(tmp_path / "db", [(b"%d" % number, encode(image, 0)) for number, image in enumerate(images)])
    mean = compute_image_mean(tmp_path / "db", tmp_path / "mean")
    np.testing.assert_allclose(mean, images.astype(float).mean(0), rtol=1e-6)


def test_the_mean_of_records_of_several_sizes_is_refused(tmp_path):
    write_lmdb(tmp_path / "db", [(b"a", encode(np.zeros((1, 2, 2)), 0)), (b"b", encode(np.zeros((1, 2, 3)), 0))])
    with pytest.raises(RecordError, match="record 'b' is 1 x 2 x 3, but the first record is 1 x 2 x 2"):
        compute_image_mean(tmp_path / "db", tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_grey_is_kept_as_one_channel_also_when_encoded(folder):
    convert_imageset(folder, folder / "list.txt", folder / "raw", gray=True)
    convert_imageset(folder, folder / "list.txt", folder / "encoded", gray=True, encoded=True)
    for (_, raw), (_, encoded) in zip(stored(folder / "raw"), stored(folder / "encoded"), strict=True):
        assert decode(raw)[0].shape == (1, 6, 5)
        np.testing.assert_array_equal(decode(raw)[0], decode(encoded)[0])


def test_a_shuffle_keeps_the_pairs_and_depends_on_the_seed(folder):
    names = [f"{number}.png" for number in range(3)] * 20
    (folder / "list.txt").write_text("".join(f"{name} {name[0]}\n" for name in names))
    found = {}
    for db, seed in (("a", 1), ("b", 1), ("c", 2)):
        convert_imageset(folder, folder / "list.txt", folder / db, shuffle=True, seed=seed)
        found[db] = stored(folder / db)
        assert [key[:9] for key, _ in found[db]] == [b"%08d_" % number for number in range(60)]
        assert all(key.endswith(b"%d.png" % decode(value)[1]) for key, value in found[db])
        assert sorted(key[9:].decode() for key, _ in found[db]) == sorted(names)
    assert found["a"] == found["b"] != found["c"]


def test_a_file_name_may_hold_blanks(folder):
    picture(folder / "two words.png")
    (folder / "list.txt").write_text("two words.png 3\n\n0.png -1\n")
    convert_imageset(folder, folder / "list.txt", folder / "db")
    assert [(key, decode(value)[1]) for key, value in stored(folder / "db")] == [
        (b"00000000_two words.png", 3),
        (b"00000001_0.png", -1),
    ]


@pytest.mark.parametrize("line", ["1.png", "1.png six", "6", "1.png 6.5", "1.png 99999999999"])
def test_a_line_that_is_no_file_and_label_is_named(folder, line):
    (folder / "list.txt").write_text(f"0.png 5\n\n{line}\n")
    with pytest.raises(SourceError, match=f"list.txt:3: expected 'FILE LABEL'.*'{line}'"):
        convert_imageset(folder, folder / "list.txt", folder / "db")
    assert not (folder / "db").exists()


def test_an_image_that_is_missing_or_damaged_is_named_and_nothing_is_left(folder):
    before = sorted(os.listdir(folder))
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:80])
    with pytest.raises(RecordError, match=r"image .*/2\.png can't be decoded"):
        convert_imageset(folder, folder / "list.txt", folder / "db")
    assert sorted(os.listdir(folder)) == before
    (folder / "1.png").unlink()
    with pytest.raises(RecordError, match=r"image .*/1\.png: no such file"):
        convert_imageset(folder, folder / "list.txt", folder / "db")
    assert sorted(os.listdir(folder)) == [name for name in before if name != "1.png"]


def test_what_cannot_be_converted_is_refused(folder):
    with pytest.raises(SourceError, match="nowhere.txt: no such file"):
        convert_imageset(folder, folder / "nowhere.txt", folder / "db")
    with pytest.raises(ReaderError, match="both a resize height and width, got 0 and 9"):
        convert_imageset(folder, folder / "list.txt", folder / "db", resize_width=9)
    with pytest.raises(ReaderError, match="unknown encode type 'webp'"):
        convert_imageset(folder, folder / "list.txt", folder / "db", encode_type="webp")
    (folder / "list.txt").write_text("\n")
    with pytest.raises(SourceError, match="no records"):
        convert_imageset(folder, folder / "list.txt", folder / "db")
    picture(folder / "0.bmp")
    (folder / "list.txt").write_text("0.bmp 1\n")
    with pytest.raises(RecordError, match="0.bmp: no encoding for this suffix"):
        convert_imageset(folder, folder / "list.txt", folder / "db", encoded=True)


def test_a_database_that_exists_is_left_alone(folder):
    convert_imageset(folder, folder / "list.txt", folder / "db")
    before = stored(folder / "db")
    (folder / "list.txt").write_text("0.png 5\n")
    with pytest.raises(SourceError, match="db exists already"):
        convert_imageset(folder, folder / "list.txt", folder / "db")
    assert stored(folder / "db") == before


def test_no_bar_is_drawn_where_there_is_no_terminal(folder, capfd):
    convert_imageset(folder, folder / "list.txt", folder / "db")
    compute_image_mean(folder / "db", folder / "mean.binaryproto")
    assert capfd.readouterr() == ("", "")


def test_the_digits_are_scikit_learns_each_in_one_of_two_parts(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    found = [decode(value) for path in convert_digits(tmp_path) for _, value in stored(path)]
    assert [len(stored(tmp_path / f"digits_{part}_lmdb")) for part in ("train", "test")] == [1437, 360]
    assert {(image.shape, image.dtype) for image, _ in found} == {((1, 28, 28), np.dtype(np.uint8))}
    assert sorted(label for _, label in found) == sorted(digits.target)
    assert len({image.tobytes() for image, _ in found}) == len({image.tobytes() for image in digits.images})
    # The centres of 8 x 8 cells of 3.5 pixels: there an enlarged image is close to the small one.
    centres = (np.arange(8) * 3.5 + 1.25).round().astype(int)
    small = np.array([image[0][np.ix_(centres, centres)] for image, _ in found]) * (16 / 255)
    errors = {label: np.abs(small[:, None] - digits.images[None, digits.target == label][:, :20]) for label in (0, 7)}
    assert all((error.mean((2, 3)).min(0) < 1).all() for error in errors.values())


def test_the_digits_can_be_built_twice_while_the_old_ones_are_read(tmp_path):
    pytest.importorskip("sklearn")
    train, test = convert_digits(tmp_path)
    with LMDBReader(train) as old, LMDBReader(test) as other:
        records = old.read(range(1437))
        other.read([0])
        assert convert_digits(tmp_path) == (train, test)
        assert old.read(range(1437)) == records == stored(train)
    assert sorted(os.listdir(tmp_path)) == ["digits_test_lmdb", "digits_train_lmdb"]
    assert os.listdir(train) == ["data.mdb"]


def test_without_scikit_learn_its_name_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ReaderError, match="pip install scikit-learn"):
        convert_digits(tmp_path)


def test_a_map_that_is_full_grows_and_the_file_stays_as_small_as_its_records(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "FIRST_MAP", 1 << 16)
    monkeypatch.setattr(database_writer, "CHUNK_BYTES", 1 << 19)
    records = [(b"%06d" % number, os.urandom(5000)) for number in range(800)]
    assert write_lmdb(tmp_path / "db", iter(records)) == 800
    assert stored(tmp_path / "db") == records
    size = (tmp_path / "db/data.mdb").stat().st_size
    assert sum(len(value) for _, value in records) < size < 2 * 800 * 5000


def test_a_database_that_finds_no_room_leaves_nothing(tmp_path):
    program = """if True:
        import os, resource, signal, sys
        from readers import SourceError, write_lmdb
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            write_lmdb(sys.argv[1], ((b"%06d" % n, os.urandom(5000)) for n in range(9000)))
        except SourceError as error:
            print(error)
    """
    command = [sys.executable, "-c", program, str(tmp_path / "db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.stdout.startswith(f"{tmp_path}/db: can't be written: "), done.stderr
    assert not os.listdir(tmp_path)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(SourceError, match="nowhere/db: can't be written: no such file"):
        write_lmdb(tmp_path / "nowhere/db", [(b"a", b"b")])


def test_a_reader_of_records_that_fails_leaves_nothing(tmp_path):
    def records():
        yield b"a", b"b"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_lmdb(tmp_path / "db", records())
    assert not os.listdir(tmp_path)
