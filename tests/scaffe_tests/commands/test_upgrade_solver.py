"""scaffe upgrade-solver: what Caffe's own tool makes of a solver, and a solver that can't be upgraded."""

from google.protobuf import text_format

from scaffe.cli import main
from scaffe.proto import SolverParameter


def test_a_solver_becomes_what_caffes_tool_makes_of_it(cases, tmp_path):
    folder = cases / "caffe" / "artefacts" / "upgrade"
    assert main(["upgrade-solver", str(folder / "v0_solver.prototxt"), str(tmp_path / "new.prototxt")]) == 0
    theirs = (folder / "v0_solver_upgraded.prototxt").read_text()
    assert text_format.Parse((tmp_path / "new.prototxt").read_text(), SolverParameter()) == text_format.Parse(
        theirs, SolverParameter()
    )


def test_an_old_type_gets_its_name(tmp_path):
    (tmp_path / "old").write_text("base_lr: 0.5 solver_type: ADAM")
    assert main(["upgrade_solver_proto_text", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    new = text_format.Parse((tmp_path / "new").read_text(), SolverParameter())
    assert new == SolverParameter(base_lr=0.5, type="Adam")


def test_a_solver_of_two_types_is_refused_and_nothing_is_written(tmp_path, capsys):
    (tmp_path / "old").write_text("type: 'SGD' solver_type: ADAM")
    assert main(["upgrade-solver", str(tmp_path / "old"), str(tmp_path / "new")]) == 2
    assert "both type and the old solver_type" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
