"""A small SSD learns made pictures with boxes; training's test and `scaffe test` print its mean average precision."""

import re

import pytest
from boxed_pictures import make, solver, ssd

from scaffe.cli import main
from scaffe.errors import ScaffeError
from scaffe.proto.files import read_solver
from scaffe.training.solver_param import checked

ITERATIONS = 160


def precision(lines):
    """Return the last mean average precision that a log has."""
    return float([re.search(r"\beval = (\S+)", line) for line in lines if "eval = " in line][-1][1])


def test_a_small_ssd_learns_and_its_precision_is_printed(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "scaffe")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(ssd(make(tmp_path, 48, 0, "train.txt"), make(tmp_path, 16, 1, "test.txt")))
    (tmp_path / "solver.prototxt").write_text(solver("net.prototxt", ITERATIONS) + "show_per_class_result: true\n")
    assert main(["train", "--solver", "solver.prototxt", "--device", "cpu"]) == 0
    trained = precision(caplog.messages)
    assert trained > 0.7
    assert {"class1: ", "class2: "} <= {line[:8] for line in caplog.messages}
    caplog.clear()
    weights = f"ssd_iter_{ITERATIONS}.caffemodel"
    assert main(["test", "--model", "net.prototxt", "--weights", weights, "--iterations", "2", "--device", "cpu"]) == 0
    assert precision(caplog.messages) == pytest.approx(trained, abs=0.06)  # Integral, where the solver says 11point
    assert not [line for line in caplog.messages if line.startswith("Batch ")]


@pytest.mark.parametrize(
    ("field", "said"),
    [("eval_type: 'boxes'", "eval_type must be classification or detection, got 'boxes'"),
     ("ap_version: '12point'", "ap_version must be Integral or MaxIntegral or 11point, got '12point'")],
)  # fmt: skip
def test_wrong_fields_of_a_solver_are_refused(tmp_path, field, said):
    (tmp_path / "s.prototxt").write_text(f"net: 'x' base_lr: 0.1 lr_policy: 'fixed' {field}")
    with pytest.raises(ScaffeError, match=said):
        checked(read_solver(tmp_path / "s.prototxt"))
