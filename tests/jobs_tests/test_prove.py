"""prove_on_gpu.sh: how steps are chosen, bounded, judged and told, with programs that prove nothing; without a GPU."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
sys.path += [str(JOBS), str(JOBS / "bench")]  # jobs are no package
import kernel_cases  # noqa: E402
import kernels  # noqa: E402
import prove  # noqa: E402
import prove_lenet  # noqa: E402
import prove_programs  # noqa: E402
import prove_steps  # noqa: E402
import prove_table  # noqa: E402
import prove_verdicts  # noqa: E402

pytestmark = pytest.mark.mpi_skip


def step(program: str, seconds: int = 900, **how: object) -> prove_steps.Step:
    return prove_steps.Step("a step", "some", [sys.executable, "-c", program], seconds, **how)  # type: ignore[arg-type]


def outcome(tmp_path: Path, program: str, seconds: int = 900, **how: object) -> tuple[str, str]:
    """Return how a program's step ends, and its figures."""
    found = prove.run(step(program, seconds, **how), tmp_path / "log", 900)
    return found.result, found.figures


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print('3 passed, 1 skipped in 0.1s'); print('bye')", ("passed", "3 passed, 1 skipped in 0.1s")),
        ("print('1 failed, 2 passed in 1s'); raise SystemExit(1)", ("FAILED", "1 failed, 2 passed in 1s")),
        ("print('SKIPPED [4] a: no GPU'); print('4 skipped in 1s')", ("skipped", "skipped: SKIPPED [4] a: no GPU")),
        ("print('1 deselected'); raise SystemExit(5)", ("skipped", "skipped: 1 deselected")),
        (
            "print('SKIPPED [4] a.py:3: no GPU\\nSKIPPED [2] b.py:1: no two\\n3 passed, 6 skipped in 1s')",
            ("passed", "3 passed, 6 skipped in 1s; left out: 4 no GPU; 2 no two"),
        ),
        (
            "print('not measured: graphs, no room\\n1 passed in 1s')",
            ("passed", "1 passed in 1s; left out: graphs, no room"),
        ),
        ("raise SystemExit('no such file')", ("FAILED", "no such file")),
    ],
)
def test_a_step_is_judged_by_its_exit_code_and_what_pytest_says(tmp_path: Path, program: str, expected: tuple) -> None:
    assert outcome(tmp_path, program) == expected


def test_a_step_says_what_has_deselected_tests(tmp_path: Path) -> None:
    found = prove_steps.Step("a", "a", ["python", "-m", "pytest", "-k", "one or two", "-q"], 9)
    result = prove.judge(found, 0, "+\n2 passed, 3 deselected in 1s", 1)
    assert result.figures == "2 passed, 3 deselected in 1s; left out: deselected by -k one or two"


LEAVES = """
import pathlib, subprocess, sys
program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", program], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
pathlib.Path(sys.argv[-1]).write_text(str(child.pid))
"""  # a program that starts one in a session of its own, which SIGTERM does not end


def running(process: str) -> bool:
    """Return whether a process runs: one that has ended, and that nobody has asked for, has no words."""
    with suppress(OSError):
        return Path("/proc", process, "cmdline").read_bytes() != b""
    return False


def test_a_step_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    started = tmp_path / "child"
    command = [sys.executable, "-c", f"{LEAVES}\nchild.wait()", str(started)]
    with (tmp_path / "log").open("w") as log:
        assert prove_programs.wait(command, log, 900, lambda: started.exists() and started.read_text()) is None
    assert not running(started.read_text())


def test_what_a_step_leaves_behind_is_ended(tmp_path: Path) -> None:
    started = tmp_path / "child"
    with (tmp_path / "log").open("w") as log:
        assert prove_programs.wait([sys.executable, "-c", LEAVES, str(started)], log, 900, bool) == 0
    assert not running(started.read_text())


def test_a_step_that_the_slots_end_cuts_short_is_left_for_the_next_slot(tmp_path: Path) -> None:
    sleeps = step("import time; time.sleep(900)", seconds=4)
    assert prove.run(sleeps, tmp_path / "log", 1).result == "not run"
    assert prove.run(sleeps, tmp_path / "log", 0.9) == prove_table.Result(
        "a step", "not run", 0, "too little time was left"
    )


def test_what_is_not_there_is_skipped_and_named(tmp_path: Path) -> None:
    assert outcome(tmp_path, "", needs=("sys", "no_such_module")) == ("skipped", "skipped: no no_such_module here")
    program = "print('bench: -d cuda is not there'); raise SystemExit(2)"
    assert outcome(tmp_path, program, missing="bench: .*cuda.*") == ("skipped", "skipped: bench: -d cuda is not there")


def test_figures_are_the_last_line_of_their_form(tmp_path: Path) -> None:
    program = "print('net 1'); print('  net 2 | 3'); print('done')"
    assert outcome(tmp_path, program, figures="net .*") == ("passed", "net 2 | 3")


def test_the_tables_say_the_same(tmp_path: Path) -> None:
    results = [prove_table.Result("one", "passed", 3, "a | b"), prove_table.Result("another", "FAILED", 40, "")]
    prove_table.keep(tmp_path, results)
    assert (tmp_path / "table.txt").read_text().splitlines()[1:] == [
        "one      passed       3  a | b",
        "another  FAILED      40",
    ]
    assert (tmp_path / "table.md").read_text().splitlines()[2:] == [
        r"| one | passed | 3 | a \| b |",
        "| another | FAILED | 40 |  |",
    ]
    assert [*prove_table.earlier(tmp_path).values()] == results


def bench_line(form: str, ratio: float, code: str = "c1 aa", when: str = "2026-11-28 10:00", net: str = "alexnet bf16"):
    figures = f"stopped; {net} 256: 900 img/s; {form} 700 x{ratio:.2f} (0.90 to 2.00); best x9.99; MiB 3, {form} 4"
    return prove_table.Result(f"{net}, {form}", "passed", 9, figures, when, code)


def test_the_best_of_all_forms_decides_whichever_step_has_measured_it(tmp_path: Path) -> None:
    lines = [bench_line("eager", 4.9), bench_line("graphs", 1.5), prove_table.Result("machine", "passed", 1, "GPU 0")]
    assert [*prove_verdicts.verdicts(lines)] == [
        "alexnet bf16: x1.50 of PyTorch's best, graphs, of eager, graphs; asked x1.5: reached; "
        "not measured: compiled, compiled_graphs, autotuned"
    ]
    lines += [bench_line(form, ratio) for form, ratio in (("compiled", 2), ("compiled_graphs", 1.49), ("autotuned", 3))]
    said = (
        "alexnet bf16: x1.49 of PyTorch's best, compiled_graphs, of eager, graphs, compiled, compiled_graphs, "
        "autotuned; asked x1.5: missed"
    )
    assert [*prove_verdicts.verdicts(lines)] == [said]
    prove_table.keep(tmp_path, lines)
    assert (tmp_path / "table.txt").read_text().endswith(f"\n{said}\n")
    assert (tmp_path / "table.md").read_text().endswith(f" |\n\n{said}\n")
    assert [*prove_table.earlier(tmp_path).values()] == lines
    of_old_code = bench_line("compiled", 1.1, "c0 aa", "2026-11-27 10:00")
    assert "x1.50 of PyTorch's best, graphs, of eager, graphs;" in next(
        prove_verdicts.verdicts([of_old_code, *lines[:2]])
    )


def test_a_net_in_both_memory_formats_has_the_faster_one_and_what_is_not_asked_is_no_verdict() -> None:
    lines = [bench_line("eager first", 1.4, net="lenet float32"), bench_line("eager", 1.2, net="lenet float32")]
    assert "; asked" not in next(prove_verdicts.verdicts(lines))
    assert next(prove_verdicts.verdicts(lines)).startswith(
        "lenet float32: x1.20 of PyTorch's best, eager, of eager; not"
    )
    assert [*prove_verdicts.verdicts([bench_line("eager", 1.2, net="no net")])] == []


def test_every_form_of_the_benchmark_is_a_rival_of_each_large_net_in_bf16() -> None:
    """The steps measure all forms that a verdict knows, and it reads the lines that the benchmark prints."""
    gpu = pytest.importorskip("torch") and importlib.import_module("gpu")
    assert gpu.FORMS == prove_verdicts.FORMS
    every = [*prove_steps.steps(False, False, False)]
    tags = [{*one.tags.split()} for one in every if "bench" in one.tags.split()]
    for net in prove_steps.LARGE:
        assert net in prove_verdicts.ASKED
        assert {form for one in tags if {net, "bf16"} <= one for form in one} >= {*gpu.FORMS}
    measured = [gpu.Measured(form, 4.0, [30.0], [20.0]) for form in gpu.FORMS]
    line = gpu.line("vgg16", 64, "bf16", gpu.Rival("scaffe", print, 3.0), measured)
    assert [*prove_verdicts.verdicts([prove_table.Result("b", "passed", 1, line)])] == [
        "vgg16 bf16: x1.50 of PyTorch's best, eager, of eager, graphs, compiled, compiled_graphs, autotuned; "
        "asked x1.0: reached"
    ]


@pytest.mark.parametrize("text", ["", "[1", '[{"step": 1}]', "{}"])
def test_a_table_that_is_none_counts_as_no_earlier_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.json").write_text(text)
    assert prove_table.earlier(tmp_path) == {}


def chosen(wanted: str) -> list[str]:
    every = [*prove_steps.steps(quick=False, rehearse=False, parity=True)]
    return [one.name for one in prove.choose(every, wanted)]


def test_groups_choose_steps_and_others_are_refused() -> None:
    every = [*prove_steps.steps(quick=False, rehearse=False, parity=True)]
    assert len({one.name for one in every}) == len(every)
    assert chosen("lenet-float32,machine") == ["machine", "lenet, float32"]
    assert chosen("alexnet-bf16-eager,curves") == ["alexnet, bf16", "loss curves"]
    assert chosen("vgg16-bf16") == ["vgg16, bf16", *(f"vgg16, bf16, {form}" for form in
                                                     ("compiled_graphs", "compiled", "autotuned"))]  # fmt: skip
    assert chosen("") == [one.name for one in every]
    with pytest.raises(SystemExit, match="no steps lenat, machine-bf16; known: a, machine, kernels, products"):
        prove.choose(every, "machine,lenat,machine-bf16")


def test_the_parts_have_what_they_should_in_the_order_of_its_value() -> None:
    nets = "alexnet", "resnet50", "googlenet", "vgg16"
    first = ["machine", "kernels compile", "products", "convolutions", *(f"training, collectives: {n}" for n in (1, 2))]
    assert chosen("a") == [*first, *(f"{net}, bf16" for net in nets)]
    assert set(chosen("compiled")) == {f"{net}, bf16, compiled" for net in nets} <= {*chosen("c")}
    assert chosen("")[: len(chosen("a"))] == chosen("a") and chosen("")[-len(chosen("c")) :] == chosen("c")


def test_what_times_something_runs_alone() -> None:
    beside = [one for one in prove_steps.steps(quick=False, rehearse=False, parity=True) if not one.alone]
    assert [one.tags.split()[1] for one in beside] == [
        "machine", "kernels", "products", "layers", "layers", "solvers", "batches", "parity",
    ]  # fmt: skip
    said = [" ".join(one.command) for one in beside]
    assert not [one for one in said if re.search(r"jobs/|mpirun|collectives\.bench|device_tests(?!/)", one)]
    assert "not kernels_of_each_pass" in next(one for one in said if "test_convolution_cuda" in one)


@pytest.mark.parametrize("how", [(True, True, True), (False, False, True), (True, False, False)])
def test_each_step_runs_a_file_that_is_there(how: tuple[bool, bool, bool]) -> None:
    for one in prove_steps.steps(*how):
        files = [word for word in one.command if word.startswith(("jobs/", "tests/"))]
        assert [file for file in files if not (JOBS.parent / file).exists()] == []


def marker(path: Path, name: str, alone: bool = False) -> prove_steps.Step:
    """Return a step that adds its name to a file."""
    program = f"open({str(path)!r}, 'a').write('{name} '); print('1 passed in 1s')"
    return prove_steps.Step(name, name, [sys.executable, "-c", program], 900, alone=alone)


def test_a_run_does_what_earlier_ones_left(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "logs").mkdir()
    every = [marker(ran, "a"), marker(ran, "b")]
    first = prove.Proof(tmp_path, tmp_path, every, time.monotonic() + 900)
    first.run([every[0]])
    again = prove.Proof(tmp_path, tmp_path, every, time.monotonic() + 900)
    assert [again.has(one) for one in every] == [True, False]
    again.code = "other code"
    assert [again.has(one) for one in every] == [False, False]
    assert [again.has(one, any_code=True) for one in every] == [True, False]
    assert not prove.Proof(tmp_path, tmp_path, every, 0, "another form").has(every[0], any_code=True)
    first.lines["a"].result = "skipped"
    assert not first.has(every[0])


def test_what_measures_speed_runs_when_nothing_else_does(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "logs").mkdir()
    every = [marker(ran, "speed", alone=True), marker(ran, "a"), marker(ran, "more", alone=True), marker(ran, "b")]
    proof = prove.Proof(tmp_path, tmp_path, every, time.monotonic() + 900)
    proof.run(every)
    names = ran.read_text().split()
    assert ({*names[:2]}, names[2:]) == ({"a", "b"}, ["speed", "more"])
    assert [one.step for one in proof.results()] == ["speed", "a", "more", "b"]


def test_plans_that_are_timed_beside_other_steps_are_not_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "logs").mkdir()
    for alone in (False, True):
        one = step("import os; print(os.path.realpath(os.environ['XDG_CACHE_HOME']))", figures="/.*", alone=alone)
        found = prove.run(one, tmp_path / "logs/log", 900).figures
        assert found == str(tmp_path / ("cache" if alone else "cache/beside"))


def test_each_file_of_code_counts_and_documentation_does_not(tmp_path: Path) -> None:
    (tmp_path / "scaffe").mkdir()
    found = []
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.cu", "2"), ("README.md", "1"), ("a.pyc", "1")):
        (tmp_path / "scaffe" / name).write_text(text)
        found.append(prove.code_of(tmp_path))
    assert len({*found[:3]}) == 3 and {*found[2:]} == {found[2]}


def test_another_machine_goes_on_from_the_archive(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for path, text in (("logs/a.log", "said"), ("cache/cupy/k.cubin", "code"), ("cache/inductor/large", "not kept")):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)
    prove_table.keep(here, [prove_table.Result("one", "passed", 3, "a")])
    prove_table.pack(here, here)
    there.mkdir()
    prove_table.unpack(there, there)
    assert prove_table.earlier(there) == {}
    (here / "proof.tar.gz").rename(there / "proof.tar.gz")
    prove_table.unpack(there, there)
    assert prove_table.earlier(there) == prove_table.earlier(here) != {}
    assert (there / "logs/a.log").read_text() == "said" and (there / "cache/cupy/k.cubin").read_text() == "code"
    assert not (there / "cache/inductor").exists()
    prove_table.keep(there, [prove_table.Result("two", "passed", 3, "a")])
    prove_table.unpack(there, there)
    assert [*prove_table.earlier(there)] == ["two"]


def proven(out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script with this interpreter."""
    clean = {name: value for name, value in os.environ.items() if name not in ("WHEELS", "PARITY", "SCAFFE_ON_GPU")}
    env = {**clean, "PYTHON": sys.executable, **environment}
    return subprocess.run(["bash", JOBS / "prove_on_gpu.sh", out], env=env, capture_output=True, text=True, timeout=900)


def test_a_rehearsal_runs_the_steps_that_are_chosen_and_keeps_the_table_of_the_others(tmp_path: Path) -> None:
    earlier = prove_table.Result("LeNet on digits", "passed", 9, "accuracy 0.98")
    prove_table.keep(tmp_path, [earlier])
    out = tmp_path / "few"
    run = proven(out, WORK=str(tmp_path), REHEARSE="1", STEPS="machine,reduce", QUICK="1")
    assert run.returncode == 0, run.stderr
    assert sorted(os.listdir(out)) == ["proof.tar.gz", "table.json", "table.md", "table.txt"]
    assert (out / "table.txt").read_text() == run.stdout
    lines = [line.split()[:2] for line in run.stdout.splitlines()]
    assert lines == [["step", "result"], ["machine", "passed"], ["reduce", "of"], ["LeNet", "on"]]
    assert "bytes, slices us, checked, auto us, mpi us, slices/mpi, auto/mpi: 1048576 " in run.stdout
    assert "+ jobs/mpirun.sh -n 2" in (tmp_path / "logs/reduce_of_1_mib_2.log").read_text()
    assert [one["step"] for one in json.loads((tmp_path / "table.json").read_text())][2] == "LeNet on digits"
    assert (tmp_path / "proof.tar.gz").exists()
    log = tmp_path / "logs/machine.log"
    log.unlink()
    assert proven(tmp_path, REHEARSE="1", STEPS="machine", RESUME="1", QUICK="1").returncode == 0
    assert not log.exists()  # it had passed
    assert proven(tmp_path, REHEARSE="1", STEPS="machine", QUICK="1").returncode == 0
    assert log.exists()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"REHEARSE": "1", "STEPS": "lenat"}, "prove_on_gpu.sh: no steps lenat; known: a, machine, kernels"),
        ({"WHEELS": "/no/wheels"}, "prove_on_gpu.sh: WHEELS is /no/wheels, which is no folder\n"),
        ({"PYTHON": "/no/python"}, "prove_on_gpu.sh: no /no/python; PYTHON names the interpreter\n"),
    ],
)
def test_a_slip_is_told_in_one_line(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    run = proven(tmp_path, **environment)
    assert run.returncode in (1, 2) and run.stdout == ""
    assert run.stderr.startswith(said) and run.stderr.count("\n") == 1


def test_without_a_gpu_one_line_says_why(tmp_path: Path) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    run = proven(tmp_path)
    assert run.returncode == 2
    assert run.stderr.startswith("prove_on_gpu.sh: ") and run.stderr.count("\n") == 1
    assert "cupy" in run.stderr or "driver" in run.stderr or "GPU" in run.stderr


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        run = proven(tmp_path, REHEARSE="1", STEPS="machine")
    assert (run.returncode, run.stderr.startswith("prove_on_gpu.sh: another run writes into")) == (2, True)


def test_two_ranks_end_where_one_does_and_that_too_little_is_learnt_is_noticed(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setitem(prove_lenet.ENOUGH, 10, 0.3)
    monkeypatch.setenv("SCAFFE_VENV", sys.prefix)
    monkeypatch.setenv("PYTHONPATH", str(JOBS.parent))
    run = ["--device", "cpu", "--ranks", "1,2", "--iterations", "10"]
    assert prove_lenet.main([*run, "--folder", str(tmp_path)]) == 0
    assert "on 1,2 ranks; parameters" in capsys.readouterr().out
    monkeypatch.setitem(prove_lenet.ENOUGH, 10, 1.1)
    monkeypatch.setattr(prove_lenet, "trained", lambda *how: (0.9, np.ones(3)))
    assert prove_lenet.main(["--device", "cpu", "--iterations", "10"]) == 1


def test_the_bandwidths_kernels_run_on_the_stand_in(capsys) -> None:
    assert kernels.main(["--rehearse", "--only", "split,sgd"]) == 0
    said = capsys.readouterr().out
    forms = ["Split float32", "Split float32 NHWC", "Split bf16 NHWC", "update by SGD"]
    assert re.findall(r"^(Split.*?|update by SGD)(?: 2x|,)", said, re.MULTILINE) == forms
    assert said.endswith("slowest: nothing was timed; 4 kernels ran\n")


CHAIN = ["norm_back_chunks_last_bf16", "norm_totals", "normalise_back_last_bf16"]


@pytest.mark.parametrize(
    ("only", "launched"),
    [
        ("Pooling MAX 2x2 s2 bf16", [["pool_max_2_2_bf16_8"], ["pool_max_back_2_2_bf16_8"]] * 2),
        ("BatchNorm+Scale+Eltwise+ReLU bf16", [["norm_chunks_last_bf16", "norm_statistics", "normalise_last_bf16"],
                                               ["sum_back_unrectified_bf16", *CHAIN]] * 2),
        ("Concat float32 NHWC", [["gather_16"], ["scatter_16"]]),
        ("bias bf16", [["row_sums_bf16_8", "row_sums_1"], ["finish_bf16_8"],
                       ["unrectified_sums_bf16_8", "row_sums_1"]] * 4),
        ("fold bf16", [["fold_bf16"]] * 2),
        ("update SGD", [["update_SGD"]]),
        ("update LARS", [["lars_squares", "lars_ratios", "update_SGD"]]),
    ],
)  # fmt: skip
def test_the_bandwidths_are_of_the_kernels_that_iterations_launch(only, launched, monkeypatch) -> None:
    import host_kernels
    import strict_arrays
    from cudnn_gpu import gpu_with

    names: list[str] = []
    call, act = host_kernels.Kernel.__call__, strict_arrays.act
    monkeypatch.setattr(host_kernels.Kernel, "__call__", lambda one, *how: [names.append(one.name), call(one, *how)][1])
    monkeypatch.setattr(strict_arrays, "act", lambda *how: [names.append("CuPy"), act(*how)][1])
    found = []
    for case in kernel_cases.cases(gpu_with(), small=True, wanted=lambda name: only in name):
        case.work()
        names.clear()
        case.work()  # again and again, as it is timed
        found.append([*names])
    assert found == launched


@pytest.mark.parametrize("text", [b"", b"no archive"])
def test_a_broken_archive_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / prove_table.ARCHIVE).write_bytes(text)
    run = proven(tmp_path, REHEARSE="1", STEPS="machine")
    assert "proof.tar.gz can't be unpacked: " in run.stderr and "Traceback" not in run.stderr


def test_an_archive_that_was_cut_leaves_no_table(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").write_bytes(os.urandom(1 << 16))
    prove_table.keep(tmp_path, [prove_table.Result("one", "passed", 3, "")])
    prove_table.pack(tmp_path, tmp_path)
    archive = tmp_path / prove_table.ARCHIVE
    archive.write_bytes(archive.read_bytes()[:-1000])
    (tmp_path / "table.json").unlink()
    with pytest.raises(SystemExit, match="can't be unpacked"):
        prove_table.unpack(tmp_path, tmp_path)
    assert prove_table.earlier(tmp_path) == {}


def test_seconds_that_are_none_are_refused(tmp_path: Path) -> None:
    run = proven(tmp_path, REHEARSE="1", SECONDS_IN_ALL="10m")
    assert run.returncode == 2
    assert run.stderr == "prove_on_gpu.sh: SECONDS_IN_ALL is '10m'; expected whole seconds, such as 570\n"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # as the system's administrator may write everywhere else
    run = proven(tmp_path, REHEARSE="1")
    assert (run.returncode, run.stderr) == (
        2,
        f"prove_on_gpu.sh: cannot write into {tmp_path}; name another folder\n",
    )


@pytest.mark.parametrize(
    ("arguments", "said"), [([], "which FOLDER?"), (["out", "python3.12"], "PYTHON_VERSION is 'python3.12'")]
)
def test_wheels_for_no_folder_or_version_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    run = subprocess.run(["bash", JOBS / "wheels.sh", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stderr.count("\n")) == (2, 1)
    assert run.stderr.startswith(f"wheels.sh: {said}")
    assert not [*tmp_path.iterdir()]


def test_wheels_are_installed_beside_the_table_once_and_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "tiny_of_this_test-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_of_this_test-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_of_this_test.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-of-this-test\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = "tiny_of_this_test.py", *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD"))
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    how = {"REHEARSE": "1", "STEPS": "lenat", "WHEELS": str(folder)}
    assert "no steps lenat" in proven(tmp_path, **how).stderr
    (placed,) = tmp_path.glob("site/**/tiny_of_this_test.py")
    before = placed.stat().st_ctime_ns
    assert "no steps lenat" in proven(tmp_path, **how).stderr
    assert placed.stat().st_ctime_ns == before
    assert find_spec("tiny_of_this_test") is None
    (folder / "broken-1.0-py3-none-any.whl").write_text("no archive")
    run = proven(tmp_path, **how)
    assert run.returncode == 2 and run.stderr.splitlines()[-1].startswith("prove_on_gpu.sh: cannot install the wheels")


STEPS = """
import os, sys
sys.path[:0] = [{jobs!r}]
import prove, prove_programs, prove_steps

def steps(*how):
    print("ready", file=sys.stderr, flush=True)  # signals are noted by now
    return [prove_steps.Step(str(i), "a", command, 60, alone=i > 3) for i in range(8)]

work = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
work += "start_new_session=True); time.sleep(0.15); print('1 passed in 1s')"
command = [sys.executable, "-c", work]
prove.WORKERS, prove_programs.GRACE, prove.steps = 2, 0.3, steps
os._exit(prove.main())  # an interpreter that ends notes no signals
"""  # a proof of eight steps, each with a process that it leaves


def test_a_signal_at_any_moment_loses_no_finished_step_and_leaves_no_process(tmp_path: Path) -> None:
    import random
    import signal
    import tarfile

    command = [sys.executable, "-c", STEPS.format(jobs=str(JOBS)), str(tmp_path)]
    draw, passed = random.Random(1), set[str]()
    for number in [signal.SIGTERM, signal.SIGINT] * 5 + [0]:
        env = {**os.environ, "OF_THE_TEST": str(tmp_path)}
        run = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert run.stderr is not None and run.stderr.readline() == "ready\n"
        if number:
            with suppress(subprocess.TimeoutExpired):
                run.wait(0.1 + 0.5 * draw.random())
            run.send_signal(number)
        told, said = run.communicate(timeout=900)
        passed |= {*re.findall(r"^passed +(\d) ", said, re.MULTILINE)}
        assert run.returncode in (0, 128 + number), said
        with tarfile.open(tmp_path / prove_table.ARCHIVE) as archive:
            packed = archive.extractfile("table.json")
            assert packed is not None and packed.read() == (tmp_path / "table.json").read_bytes()
            logs = {Path(one).stem for one in archive.getnames() if one.endswith(".log")}
        results = {one.step: one.result for one in prove_table.earlier(tmp_path).values()}
        assert {step for step, result in results.items() if result == "passed"} == passed <= logs
        assert len(results) == 8 and {*results.values()} <= {"passed", "not run"}
        assert (tmp_path / "table.txt").read_text() == told
        assert [place for place in Path("/proc").glob("[0-9]*/environ") if _has(place, f"OF_THE_TEST={tmp_path}")] == []
    assert run.returncode == 0 and len(passed) == 8


def _has(place: Path, text: str) -> bool:
    with suppress(OSError):
        return text.encode() in place.read_bytes()
    return False
