"""scaffe fine-tune: from a folder of pictures to files that scaffe classify, and scaffe train, take."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from drawn_pictures import draw
from PIL import Image

import scaffe
from scaffe import models
from scaffe.cli import main
from scaffe.fine_tuning.bundle import read_transform

FILES = {
    "deploy.prototxt", "weights.caffemodel", "labels.txt", "transform.toml", "curves.png", "confusion.png",
    "train_val.prototxt", "solver.prototxt", "train.txt", "held_out.txt", "train.log",
}  # fmt: skip
CLASSES = ["cat", "dog", "owl"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with pictures, grey ones, and the result of fine-tuning these."""
    folder = tmp_path_factory.mktemp("fine-tune")
    draw(folder / "pictures", CLASSES, 20)
    draw(folder / "grey", CLASSES, 20, side=28, grey=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fine-tune", "grey", "--out", "net", "--epochs", "12"]) == 0
    return folder


@pytest.fixture
def folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def test_the_result_has_all_files_and_knows_the_classes(folder, capsys):
    assert {path.name for path in (folder / "net").iterdir()} == FILES
    assert (folder / "net/labels.txt").read_text().split() == CLASSES
    prepared = read_transform("net")
    assert prepared.resize == (28, 28) and prepared.gray and len(prepared.mean) == 1
    for name in ("curves.png", "confusion.png"):
        with Image.open(folder / "net" / name) as picture:
            assert picture.size[0] > 300 and len(picture.convert("L").getcolors()) > 10
    assert main(["classify", "net", "grey/owl/001.png", "grey/cat/002.png", "--top", "1"]) == 0
    found = re.findall(r'for (\S+) -+\n[\d.]+ - "(\w+)"', capsys.readouterr().out)
    assert found == [("grey/owl/001.png", "owl"), ("grey/cat/002.png", "cat")]


def test_train_takes_the_files_and_tests_as_the_log_says(folder, capfd, monkeypatch):
    assert (
        main(["test", "--model", "net/train_val.prototxt", "--weights", "net/weights.caffemodel", "--iterations", "1"])
        == 0
    )
    found = re.findall(r"\] accuracy = (\S+)", capfd.readouterr().err)
    assert found[-1] == "1"
    text = (folder / "net/solver.prototxt").read_text()
    (folder / "short.prototxt").write_text(re.sub("max_iter: .*", "max_iter: 2", text).replace("net/snapshot", "snap"))
    assert main(["train", "--solver", "short.prototxt", "--weights", "net/weights.caffemodel"]) == 0


def test_weights_of_another_net_are_taken_and_the_scores_are_new(folder):
    (folder / "old.prototxt").write_text(str(models.get("cifar10_quick").deploy()))
    scaffe.Net("old.prototxt", scaffe.TEST).save("old.caffemodel")
    flags = ["--from", "old.prototxt", "--weights", "old.caffemodel", "--epochs", "1", "--rate", "1e-9"]
    assert main(["fine-tune", "pictures", "--out", "colour", *flags]) == 0
    old = scaffe.Net("old.prototxt", scaffe.TEST, weights="old.caffemodel")
    new = scaffe.Net("colour/deploy.prototxt", scaffe.TEST, weights="colour/weights.caffemodel")
    assert np.allclose(new.params["conv2"][0].data, old.params["conv2"][0].data, atol=1e-6)
    assert new.params["ip2_new"][0].shape == (3, 64) and "ip2" not in new.params
    assert read_transform("colour").mean == [104, 117, 123]
    assert "mirror: true" in (folder / "colour/train_val.prototxt").read_text()


@pytest.mark.mpi_skip
def test_ranks_share_the_work_and_an_error(folder, mpirun):
    run = mpirun(2, sys.executable, "-m", "scaffe", "fine-tune", "grey", "--out", "two", "--epochs", "12")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("Accuracy on 12 held-out pictures: 1.0000") == 1
    run = mpirun(2, sys.executable, "-m", "scaffe", "fine-tune", "none", "--out", "two")
    assert run.returncode != 0 and run.stderr.count("none: no such folder") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("none", "none: no such folder, or list"),
        ("grey/cat", "grey/cat: expected a folder of pictures for each of several classes, but there is none"),
        ("grey --held-out 2", "--held-out must be a share between 0 and 1"),
        ("grey --weights w.caffemodel", "--weights needs the net"),
        ("grey --from lenett", "--from lenett: no such prototxt"),
        ("grey --from lstm", "--from lstm: takes no pictures"),
        ("grey --rate 0", "--rate must be above 0"),
        ("grey --seed -1", "--seed must be 0 or more"),
        ("none\udcff", "b'none\\xff': the name is not UTF-8"),
        ("grey --out grey", "--out grey: the folder holds other files"),
        ("grey --out net/labels.txt", "--out net/labels.txt: is a file"),
        ("grey --from old.prototxt --weights none.caffemodel --out other", "none.caffemodel"),
    ],
)
def test_an_error_is_one_line(folder, capfd, arguments, said):
    (folder / "old.prototxt").write_text(str(models.get("lenet").deploy()))
    assert main(["fine-tune", *arguments.split()]) == 2
    *_, line = capfd.readouterr().err.splitlines()
    assert line.startswith("scaffe: ") and said in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("net", "name pictures behind the classifier's folder"),
        ("grey grey/owl/001.png", "--model is missing"),
        ("net grey/owl/001.png --mean 3", "--mean: net has its own, in transform.toml"),
        ("net none.png", "none.png: no such file"),
    ],
)
def test_classify_says_what_is_missing(folder, capfd, arguments, said):
    assert main(["classify", *arguments.split()]) == 2
    *_, line = capfd.readouterr().err.splitlines()
    assert line.startswith("scaffe: ") and said in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("resize = [1]", "expected gray = a bool, got None"),
        ("resize = [0, 4]\ngray = true\nmean = [1]\nscale = 1", r"expected resize = \[height, width\], got \[0, 4\]"),
        ("resize = [4, 4]\ngray = true\nmean = ['a']\nscale = 1", "expected mean = a number for each channel"),
        ("resize = ", "transform.toml: Invalid value"),
    ],
)
def test_a_damaged_transform_is_one_line(tmp_path, content, said):
    (tmp_path / "transform.toml").write_text(content)
    with pytest.raises(scaffe.ScaffeError, match=said):
        read_transform(str(tmp_path))


def test_without_matplotlib_the_classifier_is_made(folder, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["fine-tune", "grey", "--out", "plain", "--epochs", "1"]) == 0
    assert "are not drawn: pictures need matplotlib" in capfd.readouterr().err
    assert not (folder / "plain/curves.png").exists() and (folder / "plain/weights.caffemodel").exists()
