"""scaffe draw-net: the files that dot writes, and what is said where there can be none."""

import re
import shutil
import sys

import pytest
from PIL import Image

from scaffe.cli import main

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "x"
  convolution_param { num_output: 8 kernel_size: 3 stride: 2 pad: 1 }
}
layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }
layer { name: "pool" type: "Pooling" bottom: "x" top: "p" pooling_param { global_pooling: true } }
layer { name: "fc" type: "InnerProduct" bottom: "p" top: "fc" inner_product_param { num_output: 10 } }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path


@pytest.mark.parametrize(("suffix", "kind"), [("png", "PNG"), ("jpg", "JPEG")])
def test_a_picture_has_the_format_that_its_name_says(folder, suffix, kind):
    needs_dot()
    assert main(["draw-net", "net.prototxt", f"net.{suffix}", "-rankdir", "LR"]) == 0
    with Image.open(f"net.{suffix}") as picture:
        assert picture.format == kind
        assert picture.width > 2 * picture.height  # from left to right


def test_an_svg_shows_every_layer_and_shape(folder):
    needs_dot()
    assert main(["draw-net", "net.prototxt", "net.svg"]) == 0
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (folder / "net.svg").read_text())
    assert {"conv (Convolution)", "+ relu (ReLU)", "4 x 8 x 4 x 4", "fc (InnerProduct)"} <= set(texts)


def test_draw_net_pys_arguments(folder):
    pytest.importorskip("graphviz", reason="the package graphviz is not installed")
    assert main(["draw_net", "net.prototxt", "net.dot", "--rankdir=LR", "--phase", "TEST", "--display_lrm"]) == 0
    text = (folder / "net.dot").read_text()
    assert "rankdir=LR" in text and text.count("lr mult 1") == 2


def needs_dot():
    pytest.importorskip("graphviz", reason="the package graphviz is not installed")
    if not shutil.which("dot"):
        pytest.skip("graphviz's program dot is not installed")


def refusal(capsys, *arguments):
    try:
        code = main(["draw-net", *arguments])
    except SystemExit as end:
        code = end.code
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("scaffe: ")]
    assert code == 2
    return line


def test_an_unknown_format_is_told_with_the_known_ones(folder, capsys):
    assert refusal(capsys, "net.prototxt", "net.bmp") == (
        "scaffe: net.bmp: unknown format; known: .png .svg .pdf .jpg .dot .gv"
    )


def test_a_missing_package_is_told_with_how_to_get_it(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert "pip install 'scaffe[draw]'" in refusal(capsys, "net.prototxt", "net.png")
    assert not (folder / "net.png").exists()


def test_a_missing_program_is_told_with_how_to_get_it(folder, capsys, monkeypatch):
    pytest.importorskip("graphviz", reason="the package graphviz is not installed")
    monkeypatch.setenv("PATH", str(folder))
    assert "dot is not in PATH: install graphviz" in refusal(capsys, "net.prototxt", "net.png")
    assert main(["draw-net", "net.prototxt", "net.gv"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("no.prototxt net.dot", "no.prototxt: no such file"),
        ("net.prototxt net.dot --rankdir UP", "invalid choice: 'UP'"),
        ("net.prototxt net.dot --phase VAL", "invalid choice: 'VAL'"),
        ("net.prototxt", "OUT"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(folder, capsys, arguments, said):
    assert said in refusal(capsys, *arguments.split())
