"""A replayed net takes the profile's times and computes nothing; a profile that doesn't fit is told."""

import json
import time
from dataclasses import replace

import nets
import pytest
from bad_input import Refused, train, trainable

from scaffe.cli import main
from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.tools.work import LayerWork
from scaffe.training import replay
from scaffe.training.solver import Solver

LAYERS = ["images", "ip", "loss"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


def write(path, seconds=0.0, layers=LAYERS, **more):
    rows = [{"name": name, "forward_s": seconds, "backward_s": 2 * seconds} for name in layers]
    path.write_text(json.dumps({"layers": rows, **more}))
    return path


def test_layers_take_their_times_and_leave_all_as_it_is(folder):
    profile = write(folder / "p.json", 0.01, update_s=0.02)
    solver = Solver(nets.solver_with(nets.softmax_regression("db")), compute=Compute(numbers=f"replay:{profile}"))
    before = solver.net.packed.data.copy()
    start = time.perf_counter()
    solver.step(2)
    assert time.perf_counter() - start >= 2 * (3 * 0.03 + 0.02) - 3 * replay.SLACK
    assert before.tobytes() == solver.net.packed.data.tobytes()
    solver.close()


def test_what_time_writes_can_be_replayed(folder):
    assert main(["time", "--model", "net.prototxt", "--iterations", "1", "--profile", "p.json"]) == 0
    assert list(replay.load("p.json").layers) == LAYERS
    assert all(seconds >= 0 for times in replay.load("p.json").layers.values() for seconds in times)
    assert main(train("--compute", "replay:p.json")) == 0


def test_a_profile_keeps_the_work_of_its_layers(tmp_path):
    work = {"ip": LayerWork((6.0, 8.0), (10.0, 20.0), 4.0, 2.0, 3)}
    saved = replay.Profile({"ip": (1.0, 2.0), "loss": (0.5, 0.0)}, 0.25, works=work, batch=8, threads=2)
    saved.save(tmp_path / "p.json")
    assert replay.load(tmp_path / "p.json") == replace(saved, source=str(tmp_path / "p.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no profile of scaffe time --profile"),
        ("[]", "is no profile"),
        ("{}", "no 'layers'"),
        ('{"layers": [{"name": "ip"}]}', "no 'forward_s'"),
        ('{"layers": [{"name": "ip", "forward_s": "1", "backward_s": 0}]}', "expected seconds, got '1'"),
        ('{"layers": [{"name": "ip", "forward_s": -1, "backward_s": 0}]}', "expected seconds, got -1"),
        ('{"layers": [], "update_s": true}', "expected seconds, got True"),
        ('{"layers": [], "update_s": 1e300}', "expected at most 9.22337e+09 seconds, got 1e+300"),
        ('{"layers": [], "batch": 1.5}', "expected a count, got 1.5"),
        ('{"layers": [], "update_s": 1%s}' % ("0" * 400), "int too large"),
        ("[" * 100_000, "recursion"),
        ('{"layers": [{"name": "ip", "forward_s": 0, "backward_s": 0, "flops": [1]}]}', "expected numbers for forward"),
        ('{"layers": [{"name": "ip", "forward_s": 0, "backward_s": 0, "flops": [1, 1]}]}', "no 'moved'"),
    ],
)
def test_a_file_that_is_no_profile_is_told(tmp_path, text, message):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ScaffeError) as caught:
        replay.load(path)
    assert str(path) in str(caught.value) and message in str(caught.value)


def test_a_profile_without_a_layer_or_no_profile_at_all_is_refused(folder, capsys):
    refused = Refused(folder, capsys)
    write(folder / "p.json", layers=LAYERS[:1])
    assert "p.json: no times for layer 'ip', one of 2 without" in refused(*train("--compute", "replay:p.json"))
    assert "q.json: no such file or directory" in refused(*train("--compute", "replay:q.json"))
    assert "unknown 'fp8'; known: float32 tf32 bf16 replay:PROFILE.json" in refused(*train("--compute", "fp8"))
    assert "replay" in refused("time", "--model", "net.prototxt", "--compute", "replay:p.json")
