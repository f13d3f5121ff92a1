"""Passes of a profile: their order, their bytes, and what a profile with threads adds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaffe.errors import ScaffeError
from scaffe.training.costs import read_passes

ROWS = [
    {"name": "data", "forward_s": 9.0, "backward_s": 0.0, "units": 0},
    {"name": "conv", "forward_s": 1.0, "backward_s": 2.0, "units": 4, "parameters": 40, "gradients": 36},
    {"name": "loss", "forward_s": 0.5, "backward_s": 0.25, "units": 3},
]


def write(path: Path, seconds: dict[str, tuple[float, float]] | None = None, **head: object) -> str:
    rows = [{"flops": [6, 8], "moved": [10, 20], "parameters": 0, "gradients": 0} | row for row in ROWS]
    for row in rows:
        forward, backward = (seconds or {}).get(str(row["name"]), (row["forward_s"], row["backward_s"]))
        row |= {"forward_s": forward, "backward_s": backward}
    path.write_text(json.dumps({"batch": 8, "threads": 1, "layers": rows} | head))
    return str(path)


def test_backward_follows_forward_without_the_layers_that_read(tmp_path) -> None:
    passes = read_passes(write(tmp_path / "p.json"))
    assert [(cost.name, cost.seconds) for cost in passes.costs] == [
        ("conv", 1.0), ("loss", 0.5), ("loss", 0.25), ("conv", 2.0)]  # fmt: skip
    assert [(cost.flops, cost.moved) for cost in passes.costs] == [(6, 10), (6, 10), (8, 20), (8, 20)]
    assert [cost.parameters for cost in passes.costs] == [40, 0, 0, 40 + 2 * 36]
    assert passes.gradients == [36]
    assert passes.batch == 8


def test_inference_has_forward_passes_alone(tmp_path) -> None:
    passes = read_passes(write(tmp_path / "p.json"), inference=True)
    assert [cost.name for cost in passes.costs] == ["conv", "loss"]
    assert passes.gradients == []


def test_two_threads_say_how_much_one_computes_alone(tmp_path) -> None:
    """4 units: 1 s becomes 0.6 + 0.4 / 2. 3 units of which one thread has 2: 0.5 s becomes 2 / 3 of it."""
    threaded = write(tmp_path / "2.json", {"conv": (0.8, 0.9), "loss": (1 / 3, 0.5)}, threads=2)
    passes = read_passes(write(tmp_path / "1.json"), threaded)
    assert [cost.serial for cost in passes.costs] == pytest.approx([0.6, 0.0, 1.0, 0.0])


def test_a_profile_with_threads_or_without_counts_is_refused(tmp_path) -> None:
    one = write(tmp_path / "p.json")
    with pytest.raises(ScaffeError, match=r"p2.json was measured with 2 threads; measure it with --threads 1"):
        read_passes(write(tmp_path / "p2.json", threads=2))
    with pytest.raises(ScaffeError, match=r"p.json was not measured with several threads"):
        read_passes(one, one)
    with pytest.raises(ScaffeError, match=r"q.json has no batch; give the net with --model"):
        read_passes(write(tmp_path / "q.json", batch=0))
    with pytest.raises(ScaffeError, match=r"s.json has no layer 'data', which \S+p.json has"):
        read_passes(one, write(tmp_path / "s.json", threads=2, layers=[]))
    with pytest.raises(ScaffeError, match="no layer but those that read data takes time"):
        read_passes(write(tmp_path / "z.json", {"conv": (0, 0), "loss": (0, 0)}))
