"""The file of metrics is what Prometheus's own parser reads, and is replaced as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scaffe.errors import ScaffeError
from scaffe.files.atomic import check_writable
from scaffe.monitor import numbers
from scaffe.monitor.numbers import Metric, Numbers, Sample
from scaffe.monitor.prometheus import PrometheusFile

METRICS = [metric for metric in vars(numbers).values() if isinstance(metric, Metric)]


def parsed(path: Path) -> dict[tuple[str, ...], float]:
    """Return the values of a file by name and the values of labels other than the run."""
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "run")): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


def test_the_last_value_of_each_number_stays(tmp_path: Path) -> None:
    file = PrometheusFile(tmp_path / "run 1.prom")
    tested = Sample(numbers.TEST_OUTPUT, 0.1 + 0.2, {"test_net": "0", "output": "accuracy"})
    file.write([Numbers(0, [tested]), Numbers(0, [Sample(numbers.LOSS, 2.5)])])
    file.write([Numbers(20, [Sample(numbers.LOSS, 1.5)])])
    file.write([Numbers(20, [Sample(numbers.TEST_OUTPUT, 0.5, {"test_net": "1", "output": "accuracy"})])])
    assert parsed(tmp_path / "run 1.prom") == {
        ("scaffe_test_output", "accuracy", "0"): 0.1 + 0.2,
        ("scaffe_test_output", "accuracy", "1"): 0.5,
        ("scaffe_loss",): 1.5,
    }
    assert 'run="run 1"' in (tmp_path / "run 1.prom").read_text()
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run 1.prom"]


def test_nothing_stays_of_a_rank_that_is_lost(tmp_path: Path) -> None:
    file = PrometheusFile(tmp_path / "run.prom")
    for ranks in (3, 2):
        work = [Sample(numbers.RANK_WORK, ranks + k, {"rank": str(k)}) for k in range(ranks)]
        file.write([Numbers(ranks, [Sample(numbers.INFO, 1, {"ranks": str(ranks)}), *work])])
    assert parsed(tmp_path / "run.prom") == {
        ("scaffe_info", "2"): 1.0,
        ("scaffe_rank_work_seconds", "0"): 2.0,
        ("scaffe_rank_work_seconds", "1"): 3.0,
    }


@pytest.mark.parametrize("layer", ['a "b"', "a\\n", "a\nb", "a,b={}"])
def test_any_name_of_a_layer_is_a_label(layer: str, tmp_path: Path) -> None:
    file = PrometheusFile(tmp_path / "run.prom")
    file.write([Numbers(0, [Sample(numbers.GRADIENT, 1.0, {"layer": layer})])])
    assert parsed(tmp_path / "run.prom") == {("scaffe_gradient_norm", layer): 1.0}


def test_numbers_are_named_once_with_type_and_help(tmp_path: Path) -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS) > 20
    file = PrometheusFile(tmp_path / "run.prom")
    file.write([Numbers(0, [Sample(metric, 1.0, {"rank": str(k)}) for k in range(2) for metric in METRICS])])
    families = list(text_string_to_metric_families((tmp_path / "run.prom").read_text()))
    expected = {metric.name.removesuffix("_total"): (metric.kind, metric.help) for metric in METRICS}
    assert {one.name.removeprefix("scaffe_"): (one.type, one.documentation) for one in families} == expected
    assert all(len(one.samples) == 2 for one in families)


def test_a_counter_alone_has_the_suffix_of_counters() -> None:
    assert [metric.name for metric in METRICS if metric.name.endswith("_total")] == [
        metric.name for metric in METRICS if metric.kind == "counter"
    ]


def test_where_no_file_can_be_written_is_an_error(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(ScaffeError, match=r"no/run.prom': no such folder: .*no$"):
        check_writable("metrics", tmp_path / "no" / "run.prom")
    with pytest.raises(ScaffeError, match="is a folder; name a file$"):
        check_writable("metrics", tmp_path)
    monkeypatch.setattr(os, "access", lambda *given: False)  # root may write anywhere
    with pytest.raises(ScaffeError, match=f"no permission to write in {tmp_path}$"):
        check_writable("metrics", tmp_path / "run.prom")


def test_a_name_that_is_no_utf8_is_a_label(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xffd.prom"))
    PrometheusFile(path).write([Numbers(0, [Sample(numbers.LOSS, 2.5)])])
    assert 'run="b\ufffdd"' in path.read_text()


def test_the_file_stays_where_it_was_when_the_program_goes_elsewhere(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = PrometheusFile("run.prom")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file.write([Numbers(0, [Sample(numbers.LOSS, 2.5)])])
    assert parsed(tmp_path / "run.prom") == {("scaffe_loss",): 2.5}


WRITES = """
import os, sys
from scaffe.monitor import numbers
from scaffe.monitor.numbers import Numbers, Sample
from scaffe.monitor.prometheus import PrometheusFile
file = PrometheusFile(sys.argv[1])
def wait(descriptor):
    print("it is locked", flush=True)
    input()
os.fsync = wait
file.write([Numbers(0, [Sample(numbers.LOSS, 3.5)])])
"""


def test_a_file_that_another_run_writes_is_refused_until_that_run_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "it is locked\n"
        refused = (
            rf"metrics '.*run.prom': another run, or a solver that is not closed, writes there "
            rf"\(process {other.pid} on .*\); give each run a file of its own; the lock is {path}.lock$"
        )
        with pytest.raises(ScaffeError, match=refused):
            PrometheusFile(path)
        waiting = PrometheusFile(path, at_once=False)  # of the next root, while the lost one's process still runs
        with pytest.raises(ScaffeError, match=refused):
            waiting.write([Numbers(0, [Sample(numbers.LOSS, 2.5)])])
        assert not path.exists()
        other.kill()
    assert [path.name for path in tmp_path.glob("*.tmp")]
    waiting.write([Numbers(20, [Sample(numbers.LOSS, 1.5)])])
    waiting.close()
    assert parsed(path) == {("scaffe_loss",): 1.5}
    assert [path.name for path in tmp_path.iterdir()] == ["run.prom"]


def test_a_lock_that_somebody_removed_is_made_again_or_is_another_run_s(tmp_path: Path) -> None:
    file = PrometheusFile(tmp_path / "run.prom")
    (tmp_path / "run.prom.lock").unlink()
    file.write([Numbers(0, [Sample(numbers.LOSS, 2.5)])])
    with pytest.raises(ScaffeError, match="a solver that is not closed, writes there"):
        PrometheusFile(tmp_path / "run.prom")
    (tmp_path / "run.prom.lock").unlink()
    other = PrometheusFile(tmp_path / "run.prom")
    with pytest.raises(ScaffeError, match="a solver that is not closed, writes there"):
        file.write([Numbers(1, [Sample(numbers.LOSS, 1.5)])])
    file.close()
    with pytest.raises(
        ScaffeError, match="a solver that is not closed, writes there"
    ):  # `close` left the other's lock alone
        PrometheusFile(tmp_path / "run.prom")
    other.close()


def test_a_lock_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScaffeError, match="metrics '.*run.prom': no such file or directory"):
        PrometheusFile(tmp_path / "no" / "run.prom")
