"""The job that measures, models, checks and draws the figures: order, gate, failures, conditions."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the job with made-up figures, the gate among them; return its exit code and what was measured by ID."""
    run, base, verdicts = module("run"), module("figure"), module("verdicts")

    class MadeUp(base.Figure):
        tag = base.M

        def __init__(self, name: str, found: object):
            self.id, self.found, self.is_gate, self.paper = name, found, name == "gate", "1"

        def measure(self) -> dict:
            if isinstance(self.found, Exception):
                raise self.found
            return {"value": self.found}

        def judge(self, measured: dict, modelled: dict) -> object:
            good = measured.get("value", 0.0) <= 1
            return verdicts.Judged(verdicts.REPRODUCED if good else verdicts.DIFFERS, "-")

        def draw(self, axes: object, measured: dict, modelled: dict) -> None: ...

    def start(*words: str, **found: object) -> tuple[int, dict]:
        made = {name: MadeUp(name, value) for name, value in found.items()}
        monkeypatch.setattr(run, "figures", lambda: made)
        monkeypatch.setattr(run.pages, "RESULTS", tmp_path)
        monkeypatch.setattr(run, "PICTURES", tmp_path)
        monkeypatch.setattr(run, "conditions", lambda: {"date": "", "busy": 0.5})
        monkeypatch.setattr(run, "picture", lambda *given: b"drawn")
        monkeypatch.setattr(run.pages, "write", lambda *given: None)
        monkeypatch.setattr(run.beyond, "model", lambda: None)
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        code = run.main()
        kept = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
        return code, {name: one["measured"] for name, one in kept.items()}

    return start


def test_nothing_is_measured_while_the_gate_s_gradients_differ(job) -> None:
    assert job(gate=2.0, a=0.5) == (1, {"gate": {"value": 2.0}})
    assert job("a", gate=0.0, a=0.5) == (1, {"gate": {"value": 2.0}})  # the kept result decides
    assert job(gate=0.0, a=0.5) == (0, {"gate": {"value": 0.0}, "a": {"value": 0.5}})


def test_the_job_names_the_figures_that_it_knows(job, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        job("s-caffe-99", gate=0.0, **{"s-caffe-11": 0.5, "s-caffe-9": 0.5, "parax-6": 0.5})
    assert ended.value.code == 2
    message = "papers.sh: unknown figure 's-caffe-99'; known: gate s-caffe-11 s-caffe-9 parax-6 beyond\n"
    assert capsys.readouterr() == ("", message)


def test_a_figure_that_fails_keeps_its_result_and_the_next_one_runs(job, capsys) -> None:
    job(gate=0.0, a=0.5, b=0.5)
    after = {"gate": {"value": 0.0}, "a": {"value": 0.5}, "b": {"value": 0.7}}
    assert job(gate=0.0, a=RuntimeError("no ranks"), b=0.7) == (1, after)
    assert job("--keep", gate=9.0, a=9.0, b=9.0) == (0, after)
    assert job("b", gate=9.0, a=9.0, b=0.8) == (0, after | {"b": {"value": 0.8}})
    capsys.readouterr()
    assert job(gate=0.0, a=0.5, b=module("figure").NotMeasurable("no root")) == (1, after | {"b": {"value": 0.8}})
    assert capsys.readouterr().err == "papers.sh: b: no root\n"


def test_nothing_is_measured_that_could_not_be_written(job, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(module("run").os, "access", lambda folder, mode: False)
    with pytest.raises(SystemExit) as ended:
        job(gate=RuntimeError("measured"))
    message = f"papers.sh: no permission to write in {tmp_path}, so nothing is measured\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, message)


def test_a_disk_that_is_full_is_one_line(job, capsys) -> None:
    run = module("run")

    def full(path: Path, content: bytes) -> None:
        raise run.ScaffeError(f"{path.name}: no space left on device")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "write_atomically", full)
        assert job(gate=0.0) == (1, {})
    assert capsys.readouterr().err == "papers.sh: gate: gate.json: no space left on device\n"


def test_the_gate_is_the_figure_that_compares_gradients_and_figures_are_in_the_order_of_the_pages() -> None:
    known = module("run").figures()
    assert [name for name, figure in known.items() if figure.is_gate] == ["numa-caffe-8"]
    assert list(known)[:6] == ["s-caffe-4", "s-caffe-6", "s-caffe-8", "s-caffe-9", "s-caffe-10", "s-caffe-11"]


def test_a_measurement_has_its_conditions(job, tmp_path: Path) -> None:
    job(gate=0.0)
    assert json.loads((tmp_path / "gate.json").read_text())["busy"] == 0.5
    found = module("conditions").conditions()
    assert 0 <= found["busy"] <= os.cpu_count() and found["sgemm"] > 0 and found["machine"]
    assert time.strptime(found["date"], "%Y-%m-%d %H:%M") <= time.localtime()


def test_waiting_for_a_disk_is_no_work_and_what_a_hypervisor_takes_is(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = module("conditions")
    rows = iter(("cpu 5 5 5 100 10 1 1 0 7 7\ncpu0 1", "cpu 15 5 5 150 30 1 1 20 9 9\ncpu0 1"))
    monkeypatch.setattr(conditions, "STAT", SimpleNamespace(read_text=lambda: next(rows)))
    monkeypatch.setattr(conditions, "WATCHED", 0.0)
    monkeypatch.setattr(conditions.os, "cpu_count", lambda: 4)
    assert conditions.busy() == pytest.approx(4 * (10 + 20) / 100)


def test_what_is_kept_has_a_line_for_each_key() -> None:
    found = {"date": "today", "measured": {"b": [[1, 2], ["x"], []]}, "model": {"c": None}}
    written = module("run").text(found)
    assert json.loads(written) == found and len(written.splitlines()) == 5
