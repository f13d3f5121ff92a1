"""python -m scaffe.pycaffe: programs that say `import caffe`, run as python runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ABOUT = """
import sys
import caffe
print(caffe.__name__, __name__, sys.modules["__main__"].__dict__ is globals())
print(sys.argv[1:], sys.path[0])
sys.exit(int(sys.argv[1]))
"""


def run(folder: Path, *args: str, caffe: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run python on a program, as it is or by scaffe.pycaffe."""
    command = [sys.executable, *(("-m", "scaffe.pycaffe") if caffe else ()), *args]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, input=stdin, preexec_fn=heard)


def test_a_script_has_its_arguments_its_folder_and_its_exit_code(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/helper.py").write_text("from caffe import io\n")
    (tmp_path / "sub/script.py").write_text("import helper\n" + ABOUT)
    ran = run(tmp_path, "sub/script.py", "3", "--allow-python-layers")
    assert ran.stdout == f"scaffe.pycaffe __main__ True\n['3', '--allow-python-layers'] {tmp_path / 'sub'}\n"
    assert (ran.returncode, ran.stderr) == (3, "")


def test_modules_code_and_standard_input_run_too(tmp_path):
    (tmp_path / "program.py").write_text(ABOUT)
    for args, stdin, place in (
        (("-m", "program"), "", str(tmp_path)),
        (("-c", ABOUT), "", ""),
        (("-",), ABOUT, ""),
    ):
        ran = run(tmp_path, *args, "0", stdin=stdin)
        assert (ran.stdout, ran.stderr) == (f"scaffe.pycaffe __main__ True\n['0'] {place}\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    raise ValueError('a\\nb') from KeyError('c')\nf()\n",
        "x = = 1\n",
        "import no_such_module\n",
        "raise SystemExit('a reason')\n",
        "import sys; sys.stdout.write('written'); sys.exit(None)\n",
    ],
)
def test_errors_and_exits_are_pythons_own(tmp_path, text):
    (tmp_path / "wrong.py").write_text(text)
    plain, ours = (run(tmp_path, str(tmp_path / "wrong.py"), caffe=caffe) for caffe in (False, True))
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_ctrl_c_ends_it_by_the_signal(tmp_path):
    (tmp_path / "waits.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = run(tmp_path, "waits.py")
    assert ran.returncode == -signal.SIGINT and ran.stderr.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "which program?"),
        (["--allow-python-layers"], "which program?"),
        (["no_such.py"], "no file no_such.py"),
        (["-m"], "-m needs an argument"),
        (["--allow-python-layer", "x.py"], "unknown option --allow-python-layer"),
    ],
)
def test_wrong_arguments_are_one_clear_line(tmp_path, args, said):
    ran = run(tmp_path, *args)
    assert (ran.returncode, ran.stdout) == (2, "")
    [line] = ran.stderr.splitlines()
    assert line.startswith(f"scaffe.pycaffe: {said}; usage: python -m scaffe.pycaffe [--allow-python-layers] (")


@pytest.mark.parametrize("flags", [[], ["--allow-python-layers"]])
def test_python_layers_need_the_flag(tmp_path, flags):
    (tmp_path / "twice.py").write_text(
        """
import caffe

class Twice(caffe.Layer):
    def setup(self, bottom, top):
        assert caffe.io.load_image and caffe.proto.caffe_pb2.Datum()
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        top[0].data[...] = 2 * bottom[0].data
"""
    )
    (tmp_path / "net.prototxt").write_text(
        """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 } } }
layer { name: "y" type: "Python" bottom: "x" top: "y" python_param { module: "twice" layer: "Twice" } }
"""
    )
    (tmp_path / "program.py").write_text(
        "import caffe\nprint(caffe.Net('net.prototxt', caffe.TEST).forward(x=[1, 2, 3])['y'].sum())\n"
    )
    ran = run(tmp_path, *flags, "program.py")
    assert (ran.stdout, ran.returncode) == (("12.0\n", 0) if flags else ("", 1))
    assert flags or "--allow-python-layers" in ran.stderr


def test_another_caffe_in_the_scripts_folder_is_replaced(tmp_path):
    """As in a checkout of Caffe, whose python/ has scripts beside a package that may not be built."""
    (tmp_path / "caffe").mkdir()
    (tmp_path / "caffe/__init__.py").write_text("raise ImportError('not built')\n")
    (tmp_path / "program.py").write_text(
        """
import multiprocessing
import caffe

def name(_):
    return caffe.__name__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(caffe.__name__, *pool.map(name, [0]))
"""
    )
    ran = run(tmp_path, "program.py")
    assert (ran.stdout, ran.stderr) == ("scaffe.pycaffe scaffe.pycaffe\n", "")


@pytest.mark.mpi_skip
def test_under_mpirun_each_rank_runs_it_and_a_wrong_argument_is_told_once(tmp_path, mpirun):
    (tmp_path / "program.py").write_text("import caffe\nprint(caffe.solver_rank(), 'of', caffe.solver_count())\n")
    command = [sys.executable, "-m", "scaffe.pycaffe"]
    ran = mpirun(2, *command, "program.py", cwd=tmp_path)
    assert sorted(ran.stdout.splitlines()) == ["0 of 2", "1 of 2"], ran.stderr
    ran = mpirun(2, *command, "no_such.py", cwd=tmp_path)
    assert ran.returncode == 2 and ran.stderr.count("no file no_such.py") == 1
    assert os.listdir(tmp_path) == ["program.py"]


@pytest.mark.mpi_skip
@pytest.mark.parametrize(("code", "exits"), [("3", 3), ("'no data'", 1)])
def test_under_mpirun_a_rank_that_exits_with_an_error_ends_all(tmp_path, mpirun, code, exits):
    program = f"""
import sys, caffe
from scaffe.parallel.world import open_world
world = open_world()
if caffe.solver_rank() == 1:
    sys.exit({code})
world.comm.Barrier()
"""
    (tmp_path / "program.py").write_text(program)
    ran = mpirun(2, sys.executable, "-m", "scaffe.pycaffe", "program.py", cwd=tmp_path)
    assert ran.returncode == exits, ran.stderr
    assert (exits == 3) or "no data" in ran.stderr
