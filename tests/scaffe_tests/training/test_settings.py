"""Settings of a training run: one definition gives Solver's keyword, a flag, a key of a file and a line of the docs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import nets
import pytest

from readers import Reading
from scaffe.cli import parser
from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.monitor.watching import Watching
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.setting import Setting, settings_of
from scaffe.training.settings import Settings, read_settings, table
from scaffe.training.solver import Solver

DOCS = Path(__file__).resolve().parents[3] / "docs"
RECORDS = {one.name: type(one.default) for one in fields(Settings)}
ALL = [(name, one) for name, record in RECORDS.items() for one in settings_of(record)]
TABLES = "[compute] [run] [instances] [reading] [watching]"
IDS = [f"{name}.{one.name}" for name, one in ALL]


def other_value(one: Setting) -> object:
    """Return a value that is not the default."""
    if one.values:
        return next(value for value in one.values if value != one.default)
    texts = {"numbers": "bf16", "plan": "timed", "reduce": "chain", "bucket_bytes": "8K", "supernodes": "a;b"}
    texts |= {"shuffle": "full", "timeline": "t.json", "tensorboard": "tb", "metrics": "m.prom"}
    texts |= {"n": "numa", "gather": "slices", "launch_delay": "0.5"}
    given = {str: texts.get(one.name), int: 3, float: 0.5, bool: not one.default}[type(one.default)]
    return 2.0**20 if one.name == "workspace_bytes" else given


@pytest.mark.parametrize(("record", "one"), ALL, ids=IDS)
def test_each_setting_is_a_key_and_a_flag_that_say_the_same(record: str, one: Setting, tmp_path: Path) -> None:
    value = other_value(one)
    expected = Settings(**{record: RECORDS[record](**{one.name: value})})
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    (tmp_path / "run.toml").write_text(f"[{record}]\n{one.key} = {text}\n")
    assert read_settings(tmp_path / "run.toml") == expected
    flag = f"--no-{one.flag_name}" if value is False else f"--{one.flag_name}"
    words = [flag, *([] if isinstance(value, bool) else [f"{value:.12g}" if value == 2**20 else str(value)])]
    assert Settings().with_flags(vars(parser().parse_args(["train", "--solver", "s", *words]))) == expected


def test_a_switch_of_a_file_is_turned_off_by_its_flag(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[watching]\nstall-abort = true\n")
    given = vars(parser().parse_args(["train", "--solver", "s", "--nostall-abort"]))
    assert read_settings(tmp_path / "run.toml").with_flags(given) == Settings()


def test_a_number_of_instances_or_of_seconds_is_a_number_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[instances]\nn = 4\nlaunch-delay = 0.005\n")
    expected = Settings(instances=Instances("4", launch_delay="0.005"))
    assert read_settings(tmp_path / "run.toml") == expected


def test_keys_above_the_tables_are_the_runs(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'reduce = "chain"\nchunk_bytes = 5\n[reading]\nthreads = 2\n[run]\nsync = "allreduce"'
    )
    run = Run(reduce="chain", chunk_bytes=5, sync="allreduce")
    assert read_settings(tmp_path / "run.toml") == Settings(run=run, reading=Reading(threads=2))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[compute]\nspeed = 9", "unknown key 'speed' in [compute]; known: engine device numbers threads plan"),
        ("[computing]\nthreads = 9", f"unknown table [computing]; known: {TABLES}"),
        ('engine = "onednn"', "unknown key 'engine' in [run]; write engine in [compute]"),
        ("[run]\nthreads = 2", "unknown key 'threads' in [run]; write threads in [compute] or threads in [reading]"),
        ("[reading]\nreader_threads = 2", "unknown key 'reader_threads' in [reading]; write threads in [reading]"),
        ('scal = "weak"', "unknown key 'scal' in [run]; write scaling in [run]"),
        ("[run.more]\nthreads = 9", f"unknown table [more]; known: {TABLES}"),
        ("compute = 3", "compute must be a table, [compute], got 3"),
        ("instances = 3", "instances must be a table, [instances], got 3; write n in [instances]"),
        ("[instances]\ninstances = 3", "unknown key 'instances' in [instances]; write n in [instances]"),
        ("[run]\nn = 3", "unknown key 'n' in [run]; write n in [instances]"),
        ("[instances]\nn = 0", "instances must be a number, numa, core, x:C such as x:4, or auto; got '0'"),
        ("[[reading]]\nprefetch = 3", "reading must be a table, [reading], got [{'prefetch': 3}]"),
        ("reduce = 'cb'\n[run]\nreduce = 'chain'", "key 'reduce' is given twice"),
        ("[run]\nchunk-bytes = 1\nchunk_bytes = 2", "key 'chunk_bytes' is given twice"),
        (f"[watching]\nstall-seconds = {'9' * 400}", "stall_seconds must be 0 (off) or more, got inf"),
        (
            f"[compute]\nworkspace-bytes = '{'9' * 400}'",
            "workspace-bytes: bytes such as 64M or 1G are needed, got '9",
        ),
        ("chunk-bytes = " + "9" * 5000, "Exceeds the limit"),
        ('[compute]\nnumbers = "fp8"', "numbers: unknown 'fp8'; known: float32 tf32 bf16"),
        ('[compute]\nworkspace-bytes = "lots"', "workspace-bytes: bytes such as 64M or 1G are needed, got 'lots'"),
        ('[reading]\nreaders = "both"', "unknown readers 'both'; known: parallel single"),
        ("[watching]\nstall-seconds = -1", "stall_seconds must be 0 (off) or more, got -1"),
        ("[watching]\nstall-abort = 1", "stall-abort must be true or false, got 1"),
        ('[watching]\nstall = "wait"', "unknown stall 'wait'; known: abort shrink say"),
    ],
)
def test_a_wrong_table_is_an_error_with_its_path(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ScaffeError) as caught:
        read_settings(path)
    assert str(caught.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(("record", "one"), ALL, ids=IDS)
def test_ranks_agree_on_each_setting_but_their_number_of_threads(record: str, one: Setting) -> None:
    """Where one rank alone writes a timeline, for instance, it waits for the others for ever."""
    changed = Settings(**{record: RECORDS[record](**{one.name: other_value(one)})})
    is_each_ranks_own = (record, one.name) == ("compute", "threads")
    assert (changed.agreed() == Settings().agreed()) is is_each_ranks_own


def test_a_files_device_counts_where_no_flag_names_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text('[compute]\ndevice = "cuda"\n')
    command = [
        sys.executable,
        "-m",
        "scaffe",
        "train",
        "--solver",
        "s.prototxt",
        "--run-config",
        "run.toml",
        "--gpu",
        "x",
    ]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2
    assert "--gpu takes 'all' or ids such as 0,2, got 'x'" in run.stderr
    run = subprocess.run([*command[:-1], "0", "--device", "cpu"], cwd=tmp_path, capture_output=True, text=True)
    assert "--device cpu and --gpu 0 say two things" in run.stderr


def test_the_documentations_table_is_printed_by_the_module() -> None:
    assert table() in (DOCS / "cluster.md").read_text(), "paste what python -m scaffe.training.settings prints"
    for _, one in ALL:
        assert f"`--{one.flag_name}" in table()
    assert "SC-OBR" not in table() and "binomial" not in table()  # what is registered is listed by --help


def test_solver_takes_its_records_and_little_else() -> None:
    taken = [name for name in inspect.signature(Solver).parameters]
    assert taken == ["param", "world", *RECORDS]
    assert len(taken) + len(("faults",)) <= 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engine": "onednn"}, "engine= has moved: write compute=Compute(engine=...)"),
        ({"threads": 2}, "threads= has moved: write compute=Compute(threads=...)"),
        ({"scaling": "weak"}, "scaling= has moved: write run=Run(scaling=...)"),
        ({"keep_snapshots": 2}, "keep_snapshots= has moved: write run=Run(keep_snapshots=...)"),
        ({"timeline": "t.json"}, "timeline= has moved: write watching=Watching(timeline=...)"),
        ({"prefetch": 2}, "prefetch= has moved: write reading=Reading(prefetch=...)"),
        ({"asked": list}, "asked= has moved: write solver.asked = ..."),
        ({"compute": "bf16"}, "compute= takes a record, Compute(...), got 'bf16'"),
        ({"instances": 2}, "instances= takes a record, Instances(...), got 2"),
        ({"n": 2}, "n= has moved: write instances=Instances(n=...)"),
        ({"run": None}, "run= takes a record, Run(...), got None"),
        ({"watching": Compute()}, "watching= takes a record, Watching(...), got Compute("),
    ],
)
def test_an_earlier_keyword_is_an_error_that_names_the_new_one(
    given: dict[str, object], said: str, tmp_path: Path
) -> None:
    nets.write_images(tmp_path / "db", 8)
    with pytest.raises(ScaffeError) as caught:
        Solver(nets.solver_with(nets.softmax_regression(tmp_path / "db")), **given)  # type: ignore[arg-type]
    assert str(caught.value).startswith(said)


def test_a_device_that_the_world_does_not_compute_on_is_an_error(tmp_path: Path) -> None:
    nets.write_images(tmp_path / "db", 8)
    param = nets.solver_with(nets.softmax_regression(tmp_path / "db"))
    with pytest.raises(ScaffeError, match="device cuda, but the net has no GPU"):
        Solver(param, compute=Compute(device="cuda"), watching=Watching(stall_seconds=0))
