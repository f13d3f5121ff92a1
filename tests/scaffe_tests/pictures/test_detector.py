"""Detector: windows of images and their context, against the same steps by hand."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import scaffe
from scaffe.errors import ShapeError
from scaffe.pictures.detector import Detector

SIZE, PAD = 32, 8
RNG = np.random.default_rng(0)
NET = """
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 2 dim: {0} dim: 32 dim: 32 }} }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
  inner_product_param {{ num_output: 5 weight_filler {{ type: "gaussian" std: 0.1 }} }} }}
layer {{ name: "prob" type: "Softmax" bottom: "fc" top: "prob" }}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a net for colours and one for grey images, in batches of 2, and two images."""
    monkeypatch.chdir(tmp_path)
    for name, channels in (("net", 3), ("grey", 1)):
        (tmp_path / f"{name}.prototxt").write_text(NET.format(channels))
        scaffe.Net(f"{name}.prototxt", scaffe.TEST).save(f"{name}.caffemodel")
    for name in ("a.png", "b.png"):
        Image.fromarray(RNG.integers(0, 256, (40, 48, 3), np.uint8)).save(name)
    return tmp_path


def detector(net="net", **more):
    return Detector(f"{net}.prototxt", f"{net}.caffemodel", **more)


def resized(pixels, height, width):
    return scaffe.pictures.io.resize_image(pixels, (height, width))


def test_each_window_is_warped_to_the_input_and_scored(folder):
    steps = dict(mean=np.array([9.0, 8, 7]), raw_scale=255, input_scale=0.5, channel_swap=(2, 1, 0))
    windows = {"a.png": [(0, 0, 40, 48), (3, 5, 20, 12)], "b.png": [(8, 0, 9, 30)]}
    found = detector(**steps).detect_windows((name, np.array(boxes)) for name, boxes in windows.items())
    expected = [(name, box) for name, boxes in windows.items() for box in boxes]
    assert [(one["filename"], tuple(one["window"])) for one in found] == expected
    net = scaffe.Net("net.prototxt", "net.caffemodel", scaffe.TEST)
    for one in found:
        ymin, xmin, ymax, xmax = one["window"]
        pixels = np.asarray(Image.open(one["filename"]), np.float32)[ymin:ymax, xmin:xmax] / 255
        values = resized(pixels, SIZE, SIZE)[:, :, ::-1].transpose(2, 0, 1) * 255 - np.array([9, 8, 7])[:, None, None]
        prob = net.forward(data=np.broadcast_to(values / 2, (2, 3, SIZE, SIZE)))["prob"][0]
        np.testing.assert_allclose(one["prediction"], prob, atol=1e-5)


def test_context_is_a_border_of_the_input(folder):
    image = RNG.random((40, 48, 3)).astype(np.float32)
    # 16 of the input's 32 pixels show the window: the context is twice as large as the window
    inside = detector(context_pad=PAD).crop(image, np.array([10, 12, 19, 21]))
    np.testing.assert_array_equal(inside, resized(image[5:25, 7:27], SIZE, SIZE))


def test_outside_the_image_the_context_is_the_mean(folder):
    image = RNG.random((40, 48, 3)).astype(np.float32)
    mean = np.array([51.0, 102, 204])
    net = detector(context_pad=PAD, mean=mean, raw_scale=255, channel_swap=(2, 0, 1))
    corner = net.crop(image, (0, 0, 9, 9))
    # from -5 to 15: 8 of 32 pixels lie outside
    np.testing.assert_array_equal(corner[8:, 8:], resized(image[:15, :15], 24, 24))
    red_green_blue = mean[[1, 2, 0]] / 255  # its first value is blue's, since the swap puts blue first
    for outside in (corner[:8], corner[:, :8]):
        np.testing.assert_allclose(outside, np.broadcast_to(red_green_blue, outside.shape), rtol=1e-6)
    # the values that the net is given there are 0
    np.testing.assert_allclose(net.transformer.preprocess("data", corner)[:, :8], 0, atol=1e-4)
    assert tuple(net.crop_dims) == corner.shape == (SIZE, SIZE, 3)


def test_a_mean_image_fills_the_context_at_its_place(folder):
    mean = RNG.random((3, SIZE, SIZE)) * 255
    net = detector(context_pad=PAD, mean=mean, raw_scale=255)
    corner = net.crop(np.zeros((40, 48, 3), np.float32), (0, 0, 9, 9))
    np.testing.assert_allclose(corner[:8], mean.transpose(1, 2, 0)[:8] / 255, rtol=1e-5)


def test_the_context_can_be_set_later(folder):
    net = detector()
    image = RNG.random((40, 48, 3)).astype(np.float32)
    np.testing.assert_array_equal(net.crop(image, (10, 12, 19, 21)), image[10:19, 12:21])
    net.configure_crop(PAD)
    assert net.crop(image, (10, 12, 19, 21)).shape == (SIZE, SIZE, 3)


def test_a_net_of_one_channel_reads_grey_images(folder):
    [one] = detector("grey", raw_scale=255).detect_windows([("a.png", [(0, 0, 32, 32)])])
    grey = scaffe.pictures.io.load_image("a.png", color=False)[:32, :32, 0] * 255
    net = scaffe.Net("grey.prototxt", "grey.caffemodel", scaffe.TEST)
    expected = net.forward(data=np.broadcast_to(grey, (2, 1, SIZE, SIZE)))["prob"][0]
    np.testing.assert_allclose(one["prediction"], expected, atol=1e-5)


def test_selective_search_proposes_the_windows(folder, monkeypatch):
    asked = []

    def get_windows(names, cmd):
        asked.append((names, cmd))
        return [np.array([[0, 0, 9, 9]]), np.array([[1, 2, 30, 40], [3, 4, 5, 6]])]

    monkeypatch.setitem(sys.modules, "selective_search_ijcv_with_python", SimpleNamespace(get_windows=get_windows))
    found = detector().detect_selective_search(["a.png", "b.png"])
    names = [str(folder / name) for name in ("a.png", "b.png")]
    assert asked == [(names, "selective_search_rcnn")]
    assert [one["filename"] for one in found] == [names[0], names[1], names[1]]


def test_without_the_module_of_selective_search_windows_must_be_given(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "selective_search_ijcv_with_python", None)
    with pytest.raises(scaffe.ScaffeError, match="needs the module selective_search_ijcv_with_python, and MATLAB; or"):
        detector().detect_selective_search(["a.png"])


@pytest.mark.parametrize("pad", [None, PAD])
@pytest.mark.parametrize("window", [(5, 5, 5, 9), (9, 5, 5, 9), (40, 0, 50, 9), (0, -9, 9, 0)])
def test_a_window_without_pixels_is_refused(folder, window, pad):
    with pytest.raises(ShapeError, match=r"window \(.*\) has no pixels in an image of \(40, 48\)"):
        detector(context_pad=pad).crop(np.zeros((40, 48, 3), np.float32), window)


def test_the_image_of_a_window_without_pixels_is_named(folder):
    with pytest.raises(ShapeError, match=r"^image a.png: window \(5, 5, 5, 9\) has no pixels"):
        detector().detect_windows([("a.png", [(0, 0, 9, 9), (5, 5, 5, 9)])])


@pytest.mark.parametrize("pad", [-1, 16, 99])
def test_a_context_that_leaves_no_window_is_refused(folder, pad):
    with pytest.raises(ShapeError, match=f"context_pad {pad}: expected 0 or more, and less than half of 32 x 32"):
        detector(context_pad=pad)


def test_images_need_the_channels_of_the_input(folder):
    with pytest.raises(ShapeError, match=r"images \(H x W x 1\), got shape \(4, 4, 3\); read it with color=False"):
        detector("grey").check_channels(np.zeros((4, 4, 3)))
    with pytest.raises(ShapeError, match=r"takes images \(H x W x 3\), got shape \(4, 4\)$"):
        detector().check_channels(np.zeros((4, 4)))
