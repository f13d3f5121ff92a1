"""scaffe classify and scaffe.Classifier, against the same steps by hand."""

import re
from pathlib import Path

import numpy as np
import pytest
from deploy import deploy
from PIL import Image

import scaffe
from readers import read_mean
from scaffe.cli import main
from scaffe.errors import ShapeError

NAMES = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture
def folder(cases, tmp_path, monkeypatch):
    """The working directory, with deploy.prototxt for batches of 4, labels.txt and Caffe's own files in caffe/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "caffe").symlink_to(cases / "caffe" / "artefacts")
    deploy(tmp_path / "caffe/quick_xavier.prototxt", tmp_path / "deploy.prototxt", 4)
    (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")
    return tmp_path


def classify(*more):
    """Return a command line; its preparation is that of the net's training."""
    net = ["--model", "deploy.prototxt", "--weights", "caffe/quick_xavier_iter_50.caffemodel"]
    return ["classify", *net, "--mean", "caffe/mean.binaryproto", "--input-scale", "0.015625", *more]


IMAGES = [f"caffe/images/{name}" for name in ("000_c3.png", "001_c0.png", "002_c7.png", "003_c4.png")]


def probabilities(images):
    """Return the net's output for images of its size, prepared in plain numpy."""
    net = scaffe.Net("deploy.prototxt", "caffe/quick_xavier_iter_50.caffemodel", scaffe.TEST)
    pixels = np.array([np.asarray(Image.open(path))[:, :, ::-1].transpose(2, 0, 1) for path in images], np.float32)
    found = []
    for image in (pixels - read_mean("caffe/mean.binaryproto")) / 64:
        net.blobs["data"].data[...] = image
        found.append(net.forward()["prob"][0].copy())
    return np.array(found)


def printed(text):
    """Return for each image its (probability, name) lines."""
    parts = re.split(r"-{10} Prediction for (\S+) -{10}\n", text)[1:]
    lines = [re.findall(r'^(\d\.\d{4}) - "(.*)"$', part, re.M) for part in parts[1::2]]
    return dict(zip(parts[::2], lines, strict=True))


@pytest.mark.parametrize("labels", [True, False])
def test_the_likeliest_classes_are_printed_as_caffes_example_does(folder, capsys, labels):
    assert main(classify(*IMAGES, "--center-only", *(["--labels", "labels.txt"] if labels else []))) == 0
    found = printed(capsys.readouterr().out)
    assert list(found) == IMAGES
    for path, prob in zip(IMAGES, probabilities(IMAGES), strict=True):
        best = np.argsort(-prob)[:5]
        assert found[path] == [(f"{prob[k]:.4f}", NAMES[k] if labels else str(k)) for k in best]
        assert best[0] == int(path[-5])  # the class that its name tells


def test_without_center_only_ten_crops_are_averaged(folder):
    mean = read_mean("caffe/mean.binaryproto")
    scaled = {"mean": mean, "raw_scale": 255, "input_scale": 1 / 64, "channel_swap": (2, 1, 0)}
    net = scaffe.Classifier("deploy.prototxt", "caffe/quick_xavier_iter_50.caffemodel", (40, 36), **scaled)
    images = [scaffe.pictures.io.load_image(IMAGES[0]), scaffe.pictures.io.load_image("caffe/images/odd0.png")]
    found = net.predict(images)
    larger = [scaffe.pictures.io.resize_image(image, (40, 36)) for image in images]
    crops = scaffe.pictures.io.oversample(larger, (32, 32)).transpose(0, 3, 1, 2)[:, ::-1]
    outputs = [
        net.forward(data=np.broadcast_to(x, (4, 3, 32, 32)))["prob"][0].copy() for x in (crops * 255 - mean) / 64
    ]
    np.testing.assert_allclose(found, np.array(outputs).reshape(2, 10, 10).mean(axis=1), atol=1e-5)


def test_a_crop_of_the_middle_is_taken(folder):
    net = scaffe.Classifier("deploy.prototxt", "caffe/quick_xavier_iter_50.caffemodel", (36, 40))
    image = np.random.default_rng(0).random((36, 40, 3)).astype(np.float32)
    inside = scaffe.Classifier("deploy.prototxt", "caffe/quick_xavier_iter_50.caffemodel")
    expected = inside.predict([image[2:34, 4:36]], oversample=False)
    np.testing.assert_array_equal(net.predict([image], oversample=False), expected)


def test_predict_refuses_what_is_no_list_of_images(folder):
    net = scaffe.Classifier("deploy.prototxt", "caffe/quick_xavier_iter_50.caffemodel")
    with pytest.raises(TypeError, match="predict takes a list of images, got none"):
        net.predict([])
    for given in (IMAGES[0], IMAGES):  # a name, or names, in place of images
        with pytest.raises(ShapeError, match=r"takes images \(H x W x 3\), got shape \(\)"):
            net.predict(given)


def test_a_mean_of_three_numbers_is_that_of_b_g_r(folder, capsys):
    line = classify(IMAGES[0], "--top", "10")
    line[line.index("--mean") + 1] = "10,20,30"
    np.save("mean.npy", np.broadcast_to(np.array([10, 20, 30])[:, None, None], (3, 32, 32)))
    assert main(line) == 0
    first = capsys.readouterr().out
    line[line.index("--mean") + 1] = "mean.npy"
    assert main(line) == 0
    assert capsys.readouterr().out == first
    assert len(printed(first)[IMAGES[0]]) == 10


def by_classify_py(*words):
    """Return a command line of pycaffe's classify.py."""
    net = ["--model_def=deploy.prototxt", "--pretrained_model=caffe/quick_xavier_iter_50.caffemodel"]
    return ["classify", *words, *net, "--mean_file", "caffe/mean.binaryproto", "--input_scale=0.015625"]


def test_classify_pys_arguments_write_the_scores_of_an_image(folder, capsys):
    assert (
        main(by_classify_py(IMAGES[1], "out.npy", "--center_only", "--raw_scale=255", "--channel_swap", "2,1,0")) == 0
    )
    np.testing.assert_allclose(np.load("out.npy"), probabilities(IMAGES[1:2]), atol=1e-5)
    assert capsys.readouterr().out == ""


def test_images_come_from_a_folder_or_an_array(folder):
    (folder / "three").mkdir()
    for path in IMAGES[:3]:
        (folder / "three" / Path(path).name).symlink_to((folder / path).resolve())
    np.save("three.npy", [scaffe.pictures.io.load_image(path) for path in IMAGES[:3]])
    expected = probabilities(IMAGES[:3])
    for given in (["three", "--ext=png"], ["three.npy"]):
        assert main(by_classify_py(given[0], "scores.npy", "--center_only", *given[1:])) == 0
        np.testing.assert_allclose(np.load("scores.npy"), expected, atol=1e-5)


def test_images_of_an_array_are_named_by_their_number(folder, capsys):
    np.save("two.npy", np.zeros((2, 32, 32, 3), np.float32))
    assert main(classify("two.npy", IMAGES[0], IMAGES[0])) == 0
    out = capsys.readouterr().out
    assert re.findall(r"Prediction for (\S+) ", out) == ["two.npy[0]", "two.npy[1]", IMAGES[0], IMAGES[0]]


def test_an_empty_mean_and_swap_are_none_as_in_classify_py(folder):
    line = by_classify_py(IMAGES[0], "out.npy", "--center_only", "--channel_swap=")
    line[line.index("--mean_file") + 1] = ""
    assert main(line) == 0
    steps = {"raw_scale": 255, "input_scale": 1 / 64}
    net = scaffe.Classifier("deploy.prototxt", "caffe/quick_xavier_iter_50.caffemodel", **steps)
    expected = net.predict([scaffe.pictures.io.load_image(IMAGES[0])], oversample=False)
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=1e-5)


def test_a_net_for_grey_images_is_told_with_the_flag_to_give(folder, capsys):
    text = (folder / "deploy.prototxt").read_text()
    (folder / "grey.prototxt").write_text(text.replace("dim: 3", "dim: 1"))
    scaffe.Net("grey.prototxt", scaffe.TEST).save("grey.caffemodel")
    line = ["classify", IMAGES[0], "--model", "grey.prototxt", "--weights", "grey.caffemodel"]
    assert main(line) == 2
    assert (
        "takes images (H x W x 1), got shape (32, 32, 3); read it with color=False, on the command line with --gray"
        in (capsys.readouterr().err)
    )
    assert main([*line, "--gray"]) == 0


def test_a_net_that_takes_no_images_is_told_with_its_inputs(folder, monkeypatch):
    monkeypatch.chdir("caffe")
    with pytest.raises(ShapeError, match="needs an input for images .*; its inputs: none"):
        scaffe.Classifier("quick_xavier.prototxt", "quick_xavier_iter_50.caffemodel")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["no.png"], "image no.png: no such file"),
        (["labels.txt"], "image labels.txt can't be decoded as an image"),
        ([IMAGES[0], "--labels", "deploy.prototxt"], "deploy.prototxt: \\d+ labels for a net with 10 outputs"),
        ([IMAGES[0], "--labels", IMAGES[0]], "not a text file; expected the names of the classes"),
        ([IMAGES[0], "--mean", "labels.txt"], "--mean labels.txt .a file of another kind.: expected a .binaryproto"),
        ([IMAGES[0], "--mean", "no.npy"], "mean file no.npy: no such file"),
        ([IMAGES[0], "--mean", "no.binaryproto"], "mean file no.binaryproto: no such file"),
        ([IMAGES[0], "--mean", "1,2"], "a mean of shape .2, 1, 1. doesn't fit its channels"),
        ([IMAGES[0], "--images-dim", "16,16"], "images of .16, 16. are smaller than the net's input of .32, 32."),
        ([IMAGES[0], "--images-dim", "32"], "expected H,W such as 256,256, got '32'"),
        ([IMAGES[0], "--channel-swap", "2,2,0"], "expected an order of channels such as 2,1,0, got '2,2,0'"),
        ([IMAGES[0], "--channel-swap", "1,0"], "a channel swap names each of its 3 once, got"),
        ([IMAGES[0], "--gray"], "takes images .H x W x 3., got shape .32, 32, 1.; .* without --gray"),
        (["caffe/images"], "folder caffe/images: no file in it ends in .jpg; name another by --ext"),
        (["one.npy"], "images one.npy: no such file"),
        ([IMAGES[0], "--top", "0"], "--top must be 1 or more, got 0"),
        ([IMAGES[0], "--weights", "no.caffemodel"], "no.caffemodel: no such file"),
        (["--gpu", IMAGES[0], "out.npy"], "--gpu takes 'all' or ids such as 0,2, got 'caffe/images/000_c3.png'"),
        ([], "IMAGE"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(folder, capsys, more, said):
    try:
        code = main(classify(*more))
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    [line] = [line for line in err.splitlines() if line.startswith("scaffe: ")]
    assert (code, out) == (2, "")
    assert re.search(said, line)
    assert "Traceback" not in err
