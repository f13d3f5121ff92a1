"""What is written before and beside the training: how pictures are prepared, and what is left of an earlier result."""

from __future__ import annotations

import os

import numpy as np
import pytest
from drawn_pictures import draw

import scaffe
from scaffe import engines
from scaffe.errors import ScaffeError
from scaffe.fine_tuning import plan, report
from scaffe.fine_tuning.bundle import open_classifier, read_transform
from scaffe.fine_tuning.plan import Asked
from scaffe.proto import InputTransform, TransformationParameter

INPUT = 'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: [1, 3, {0}, {0}] }} }} }}\n'
MEANS = 'layer { name: "means" type: "Pooling" bottom: "data" top: "means"\n'
MEANS += "  pooling_param { pool: AVE global_pooling: true } }\n"
SCORES = 'layer { name: "ip" type: "InnerProduct" bottom: "means" top: "ip" inner_product_param { num_output: 4 } }\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw(tmp_path / "pictures", ("cat", "dog"), 4)
    (tmp_path / "net.prototxt").write_text(INPUT.format(210) + MEANS + SCORES)
    scaffe.Net("net.prototxt", scaffe.TEST).save("net.caffemodel")
    return tmp_path


def test_a_classifier_takes_blue_green_red(folder):
    (folder / "c").mkdir()
    (folder / "c/deploy.prototxt").write_text(INPUT.format(4) + MEANS)
    scaffe.Net("c/deploy.prototxt", scaffe.TEST).save("c/weights.caffemodel")
    (folder / "c/transform.toml").write_text("resize = [4, 4]\ngray = false\nmean = [1, 2, 3]\nscale = 1\n")
    classifier, _ = open_classifier("c", engines.create())
    red_green_blue = np.tile(np.float32([0.2, 0.4, 0.8]), (4, 4, 1))  # as io.load_image gives them
    scores = classifier.predict([red_green_blue], oversample=False).reshape(-1)
    assert np.allclose(scores, [0.8 * 255 - 1, 0.4 * 255 - 2, 0.2 * 255 - 3], atol=1e-3)


def test_a_large_net_gets_crops_of_larger_pictures(folder):
    plan.write(Asked("pictures", "out", "net.prototxt", "net.caffemodel"), 1)
    assert read_transform("out").resize == (240, 240)
    assert (folder / "out/train_val.prototxt").read_text().count("crop_size: 210") == 2
    plan.write(Asked("pictures", "other", "net.prototxt"), 1)
    assert read_transform("other").resize == (210, 210)


def test_pictures_are_prepared_as_for_the_weights(folder):
    net = scaffe.Net("net.prototxt", scaffe.TEST)
    trained = TransformationParameter(scale=0.5, mean_file="gone.binaryproto")
    net.trained = [InputTransform(net="train", transform_param=trained, mean=[10, 20, 30])]
    net.save("known.caffemodel")
    plan.write(Asked("pictures", "out", "net.prototxt", "known.caffemodel"), 1)
    prepared = read_transform("out")
    assert prepared.mean == [10, 20, 30] and prepared.scale == 0.5


def test_a_confusion_is_a_class_taken_for_another():
    counts = report.confusions([0, 0, 1, 2], [0, 1, 1, 1], 3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert report.lines(counts, ["ant", "bee", "cat"]) == [
        "Accuracy on 4 held-out pictures: 0.5000 (2 wrong)",
        "  1 of 2 'ant' taken for 'bee'", "  1 of 1 'cat' taken for 'bee'",
    ]  # fmt: skip


def test_no_weights_of_an_earlier_result_are_left(folder):
    asked = Asked("pictures", "out")
    plan.write(asked, 1)
    for name in ("weights.caffemodel", "snapshot_best.caffemodel"):
        (folder / "out" / name).write_bytes(b"of other classes")
    plan.write(asked, 1)
    assert not {name for name in os.listdir("out") if name.endswith(".caffemodel")}


def test_an_input_in_the_folder_of_the_result_is_an_error(folder):
    plan.write(Asked("pictures", "out"), 1)
    (folder / "out/weights.caffemodel").write_bytes((folder / "net.caffemodel").read_bytes())
    before = {name: (folder / "out" / name).read_bytes() for name in os.listdir("out")}
    for given in (("out/train.txt",), ("pictures", "out/deploy.prototxt", "net.caffemodel"),
                  ("pictures", "net.prototxt", "out/weights.caffemodel")):  # fmt: skip
        with pytest.raises(ScaffeError, match="--out out: it holds out/.*, an input of this command"):
            plan.write(Asked(given[0], "out", *given[1:]), 1)
    assert {name: (folder / "out" / name).read_bytes() for name in os.listdir("out")} == before


def test_folders_whose_names_are_not_utf_8_are_an_error(folder):
    os.rename("pictures", b"pictures\xff")
    with pytest.raises(ScaffeError, match="the name is not UTF-8"):
        plan.write(Asked(os.fsdecode(b"pictures\xff"), "out"), 1)
    assert not os.path.exists("out")
