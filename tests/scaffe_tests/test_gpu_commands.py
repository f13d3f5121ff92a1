"""The commands on a GPU, with a stand-in for CuPy under all of scaffe: train, resume, test, time."""

import sys
from types import SimpleNamespace

import pytest
from nets import lenet, write_images, write_solver
from strict_arrays import cuda as strict_cuda
from strict_arrays import xp
from test_device_query import Runtime
from test_gpu import FakeDevice

from scaffe.cli import main
from scaffe.parallel import world as worlds


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a solver, on a machine with two GPUs."""
    runtime = Runtime(2)
    cuda = SimpleNamespace(**vars(strict_cuda), runtime=runtime, Device=FakeDevice)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(**vars(xp), cuda=cuda))
    monkeypatch.setattr("scaffe.gpu._take", lambda bus: bus)
    FakeDevice.used.clear()
    net = lenet(write_images(tmp_path / "db", count=16), batch=4)
    (tmp_path / "net.prototxt").write_text(net)
    write_solver(tmp_path, net, max_iter=2, snapshot=2, display=1, test_iter=[1], test_interval=2)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    worlds.open_world().take_gpu(None)


def test_a_net_is_trained_resumed_scored_and_timed_on_the_gpu_that_is_named(folder, capfd):
    assert main(["train", "--solver", "solver.prototxt", "--device", "cuda", "--gpu", "1"]) == 0
    assert (folder / "snap_iter_2.caffemodel").exists()
    assert "Use GPU 1: GH1 at 0000:01:00.0." in capfd.readouterr().err
    assert set(FakeDevice.used) == {1}
    assert main(["train", "--solver", "solver.prototxt", "--gpu", "1", "--snapshot", "auto"]) == 0
    score = ["test", "--model", "net.prototxt", "--weights", "snap_iter_2.caffemodel", "--iterations", "2"]
    assert main([*score, "--device", "cuda"]) == 0
    on_gpu = [line for line in capfd.readouterr().err.splitlines() if "Batch" in line and "accuracy" in line]
    assert main([*score, "--device", "cpu"]) == 0
    on_cpu = [line for line in capfd.readouterr().err.splitlines() if "Batch" in line and "accuracy" in line]
    assert [line.split("] ")[1] for line in on_gpu] == [line.split("] ")[1] for line in on_cpu] != []
    assert main(["time", "--model", "net.prototxt", "--iterations", "1", "--device", "auto"]) == 0
    assert "Use GPU 0" in capfd.readouterr().err


def test_a_solver_that_asks_for_the_cpu_gets_it_unless_a_gpu_is_asked_for(folder, capfd):
    solver = folder / "solver.prototxt"
    solver.write_text(solver.read_text() + "solver_mode: CPU\n")
    assert main(["train", "--solver", "solver.prototxt"]) == 0
    assert "Use CPU." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--engine", "onednn"], "engine onednn computes on the CPU, and a GPU was asked for; take --engine auto"),
        (["--compute", "bf16"], "on a GPU scaffe computes in float32 alone so far, not in bf16"),
        (["--gpu", "2"], "no GPU 2: there are 2, counted from 0"),
    ],
)
def test_what_a_gpu_cannot_do_is_told_in_one_line(folder, capfd, flags, said):
    assert main(["train", "--solver", "solver.prototxt", "--device", "cuda", *flags]) == 2
    assert said in capfd.readouterr().err.splitlines()[-1]
