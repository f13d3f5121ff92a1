"""scaffe detect: files of windows in, files of scores out, as pycaffe's detect.py."""

import csv
import re

import numpy as np
import pytest
from PIL import Image

import scaffe
from scaffe.cli import main
from scaffe.commands.detect import read_windows
from scaffe.pictures.detector import Detector

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 40 dim: 40 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.1 } } }
"""
WINDOWS = """xmin,ymin,xmax,ymax,filename
0,0,9,9,a.png
3.0,4.0,20.0,30.0,"b, c.png"
5,6,25,27,a.png
"""
BOXES = [("a.png", (0, 0, 9, 9)), ("a.png", (6, 5, 27, 25)), ("b, c.png", (4, 3, 30, 20))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    scaffe.Net("net.prototxt", scaffe.TEST).save("w.caffemodel")
    (tmp_path / "in.csv").write_text(WINDOWS)
    (tmp_path / "in.txt").write_text("a.png\nb, c.png\n\n")
    (tmp_path / "bad.csv").write_text(WINDOWS + "1,2,x,4,a.png\n")
    (tmp_path / "short.csv").write_text(WINDOWS + "1,2\n")
    (tmp_path / "other.csv").write_text("filename,ymin,xmin,ymax\n")
    np.save("mean.npy", np.arange(3 * 4 * 4.0).reshape(3, 4, 4))
    rng = np.random.default_rng(0)
    for name in ("a.png", "b, c.png"):
        Image.fromarray(rng.integers(0, 256, (40, 48, 3), np.uint8)).save(name)
    return tmp_path


def detect(*more):
    return ["detect", "--model_def=net.prototxt", "--pretrained_model=w.caffemodel", *more]


def expected(**steps):
    """Return the scores of BOXES, prepared by the defaults of detect.py where `steps` doesn't say other."""
    net = Detector(
        "net.prototxt", "w.caffemodel", **dict(raw_scale=255, channel_swap=(2, 1, 0), context_pad=16) | steps
    )
    return np.array([one["prediction"] for one in net.detect_windows((name, [box]) for name, box in BOXES)])


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    boxes = [(row["filename"], tuple(int(row[edge]) for edge in ("ymin", "xmin", "ymax", "xmax"))) for row in rows]
    return boxes, np.array([[float(row[f"class{k}"]) for k in range(3)] for row in rows])


def test_windows_of_a_list_are_scored_by_detect_pys_arguments(folder):
    assert main(detect("in.csv", "out.csv", "--crop_mode=list", "--context_pad=4", "--input_scale", "0.5")) == 0
    boxes, scores = read("out.csv")
    assert boxes == BOXES
    np.testing.assert_allclose(scores, expected(context_pad=4, input_scale=0.5), rtol=1e-5)


def test_the_mean_image_counts_by_its_channels(folder):
    assert main(detect("in.csv", "out.csv", "--mean_file", "mean.npy")) == 0
    mean = np.load("mean.npy").mean(axis=(1, 2))
    np.testing.assert_allclose(read("out.csv")[1], expected(mean=mean), rtol=1e-5)


def test_an_hdf5_file_has_names_windows_and_predictions(folder):
    h5py = pytest.importorskip("h5py")
    assert main(detect("in.csv", "out.h5", "--channel_swap=")) == 0
    with h5py.File("out.h5") as file:
        assert list(file["filename"].asstr()) == [name for name, _ in BOXES]
        np.testing.assert_array_equal(file["window"], [box for _, box in BOXES])
        np.testing.assert_array_equal(file["prediction"], expected(channel_swap=None))


def test_no_windows_are_no_rows(folder):
    (folder / "none.csv").write_text("filename,ymin,xmin,ymax,xmax\n")
    assert main(detect("none.csv", "out.csv")) == 0
    assert (folder / "out.csv").read_text() == "filename,ymin,xmin,ymax,xmax\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("in.csv out.pkl", "out.pkl: unknown format; known: .csv .h5 .hdf5"),
        ("in.txt out.csv", "selective search needs the module selective_search_ijcv_with_python"),
        ("in.csv out.csv --crop_mode selective_search", "selective search needs the module"),
        ("in.txt out.csv --crop_mode list", "in.txt: expected a .csv file of windows"),
        ("net.prototxt out.csv", "net.prototxt: expected a .csv file of windows"),
        ("bad.csv out.csv", r"bad.csv:5: expected xmin,ymin,xmax,ymax,filename, got '1,2,x,4,a.png'"),
        ("short.csv out.csv", "short.csv:5: expected xmin"),
        ("other.csv out.csv", "columns filename,ymin,xmin,ymax,xmax; missing: xmax"),
        ("no.csv out.csv", "no.csv: no such file"),
        ("in.csv out.csv --context-pad 16 --model net.prototxt --mean 1,2", "doesn't fit its channels"),
        ("in.csv out.csv --context-pad 20", "context_pad 20: expected 0 or more, and less than half of 40 x 40"),
        ("in.csv no/out.csv", "no/out.csv': no such folder"),
        ("in.csv", "OUT"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(folder, capsys, words, said):
    try:
        code = main(detect(*words.split()))
    except SystemExit as end:
        code = end.code
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("scaffe: ")]
    assert (code, sorted(folder.glob("out.*"))) == (2, [])
    assert re.search(said, line)


def test_edges_are_rounded_to_whole_pixels(tmp_path):
    (tmp_path / "w.csv").write_text("filename,ymin,xmin,ymax,xmax\na.png,0.6,1.4,9.7,12\n")
    assert [window.tolist() for window in read_windows(str(tmp_path / "w.csv"))["a.png"]] == [[1, 1, 10, 12]]
