"""scaffe simulate-instances: from what scaffe time writes to tables, on a net small enough to time here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scaffe.cli import main

NET = """
layer {
  name: "data" type: "DummyData" top: "x" top: "y"
  dummy_data_param { shape { dim: 8 dim: 3 dim: 8 dim: 6 } shape { dim: 8 } }
}
layer {
  name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: "xavier" } }
}
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
TINY = "--cores", "2", "--domains", "1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a net and its profiles of one thread and of two."""
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(NET)
    for threads in "12":
        command = ["time", "--model", "net.prototxt", "--iterations", "1", "--threads", threads]
        assert main([*command, "--profile", f"{threads}.json"]) == 0
    return tmp_path


def simulate(*words: str) -> int:
    return main(["simulate-instances", *words])


def table(text: str, title: str) -> list[list[str]]:
    """Return the rows of a printed table, without its heading."""
    lines = text.partition(title)[2].splitlines()[1:]
    rows = [re.split(r"  +", line.strip()) for line in lines]
    return rows[1 : rows.index([""]) if [""] in rows else -1]


def test_the_tables_have_each_size_each_delay_and_each_number_of_cores(folder: Path, capsys) -> None:
    assert simulate("1.json", "--threaded", "2.json", "--cores", "8", "--domains", "2", "--plot", "out.png") == 0
    printed = capsys.readouterr().out
    assert [row[:2] for row in table(printed, "by gather")] == [["1", "8"], ["2", "4"], ["4", "2"], ["8", "1"]]
    assert [row[0] for row in table(printed, "launch delay")] == ["1", "2"]
    assert [row[0] for row in table(printed, "one instance on all")] == ["1", "2", "4", "8"]
    assert re.search(r"^Best: \d instances of \d cores?, gather .*images/s, .* ms an iteration", printed, re.M)
    assert Path("out.png").read_bytes().startswith(b"\x89PNG")


def test_two_cores_without_limits_are_twice_as_fast(folder: Path, capsys) -> None:
    assert simulate("1.json", *TINY, "--inference", "--jitter", "0", "--barrier", "0", "--bandwidth", "inf") == 0
    [one, two] = table(capsys.readouterr().out, "one instance on all")
    assert (one[0], one[3:], two[0]) == ("1", ["1.00", "1.00", "1.00"], "2")
    assert two[4] == "2.00"


def test_the_model_counts_what_a_profile_lacks(folder: Path, capsys) -> None:
    profile = json.loads(Path("1.json").read_text())
    kept = {"name", "forward_s", "backward_s"}
    rows = [{key: value for key, value in row.items() if key in kept} for row in profile["layers"]]
    Path("old.json").write_text(json.dumps({"layers": rows}))
    assert simulate("1.json", *TINY) == 0
    counted = capsys.readouterr().out
    assert simulate("old.json", "--model", "net.prototxt", *TINY) == 0
    assert capsys.readouterr().out == counted
    assert simulate("old.json") == 2
    assert "old.json has no operations and bytes of layer 'data'; give the net with --model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("2.json", "2.json was measured with 2 threads; measure it with --threads 1"),
        ("none.json", "none.json: no such file or directory"),
        ("net.prototxt", "net.prototxt is no profile of scaffe time --profile"),
        ("1.json --cores 7", "7 cores can't be divided over 2 domains"),
        ("1.json --bandwidth 0", "bandwidth must be from 1 to inf, got 0"),
        ("1.json --batch 0", "--batch must be 1 to 1000000000, got 0"),
        ("1.json --iterations 0", "--iterations must be 1 to 1000000000, got 0"),
        ("1.json --launch-groups 0", "--launch-groups must be 1 to 1000000000, got 0"),
        (f"1.json --batch 1{'0' * 400}", "--batch must be 1 to 1000000000, got 1000"),
        (f"1.json --launch-groups 1{'0' * 400}", "--launch-groups must be 1 to 1000000000, got 1000"),
        ("1.json --core-gflops 0", "core_gflops must be from 1e-06 to 1e+09, got 0"),
        ("1.json --jitter 10", "jitter must be from 0 to 1, got 10"),
        (
            "1.json --cores 100000",
            "million loads of 100000 cores are too many to simulate (most: 1): give",
        ),
        ("1.json --iterations 1000000", "million loads of 56 cores are too many to simulate (most: 1): give fewer"),
        ("1.json --launch-delays 1,-2", "--launch-delays must be seconds such as 0.001,0.01; got '1,-2'"),
        ("1.json --launch-delays soon", "--launch-delays must be seconds such as 0.001,0.01; got 'soon'"),
        ("1.json --batch 2 --total 3", "--batch and --total say two things; give one of them"),
        ("1.json --gathers slices,heap", "unknown gather 'heap'"),
        ("1.json --plot out.bmp", "out.bmp: unknown format; known: png svg pdf"),
    ],
)
def test_wrong_words_are_told_in_one_line(folder: Path, capsys, words: str, message: str) -> None:
    capsys.readouterr()
    assert simulate(*words.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_fewer_images_than_instances_leave_sizes_out(folder: Path, capsys) -> None:
    assert simulate("1.json", "--cores", "4", "--domains", "1", "--total", "3") == 0
    assert [row[:2] for row in table(capsys.readouterr().out, "by gather")] == [["2", "2"], ["4", "1"]]
