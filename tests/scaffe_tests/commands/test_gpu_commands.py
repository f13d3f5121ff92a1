"""The commands on a GPU, with a stand-in for CuPy under all of scaffe: train, resume, test, time."""

import sys
from types import SimpleNamespace

import pytest
from fake_cublas import FakeCublas
from fake_cuda import CUDARuntimeError, FakeDevice, Runtime
from nets import lenet, write_images, write_solver
from strict_arrays import StrictDevice, xp

from scaffe import engines
from scaffe.cli import main
from scaffe.parallel import world as worlds


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a solver, on a machine with two GPUs."""
    runtime = Runtime(2)
    cuda = SimpleNamespace(**vars(xp.cuda) | {"runtime": runtime, "Device": FakeDevice})
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(**vars(xp) | {"cuda": cuda}))
    monkeypatch.setitem(sys.modules, "cudnn", None)
    monkeypatch.setattr("scaffe.devices.gpu._take", lambda bus: bus)
    monkeypatch.setattr("scaffe.engines.cuda.cublas._load", lambda gpu: FakeCublas())
    monkeypatch.setattr("collectives.execution.device.cuda.find", StrictDevice)
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
    extract = ["extract_features", "snap_iter_2.caffemodel", "net.prototxt", "ip1"]
    for number, (words, said) in enumerate([("GPU 1", "GPU 1:"), ("GPU DEVICE_ID=1", "GPU 1:"), ("CPU 1", "CPU.")]):
        assert main([*extract, f"f{number}", "1", "lmdb", *words.split()]) == 0
        assert f"Use {said}" in capfd.readouterr().err


@pytest.mark.parametrize("compute", ["tf32", "bf16"])
def test_a_net_is_trained_with_other_kinds_of_numbers(folder, capfd, compute):
    engines._announce.cache_clear()  # another test may have had it said
    assert main(["train", "--solver", "solver.prototxt", "--device", "cuda", "--compute", compute]) == 0
    assert f"Engine: cuda, {compute}" in capfd.readouterr().err


@pytest.mark.parametrize("compute", ["tf32", "bf16"])
def test_numbers_that_the_gpu_has_not_are_refused_in_one_line(folder, capfd, monkeypatch, compute):
    monkeypatch.setattr(Runtime, "getDeviceProperties", lambda self, i: {"name": b"T4", "major": 7, "minor": 5})
    assert main(["train", "--solver", "solver.prototxt", "--device", "cuda", "--compute", compute]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert f"GPU 0: T4 at 0000:00:00.0 has no {compute} numbers, which came with compute capability 8.0" in last


def test_tf32_on_the_cpu_is_refused_in_one_line(folder, capfd):
    assert main(["train", "--solver", "solver.prototxt", "--device", "cpu", "--compute", "tf32"]) == 2
    assert "tf32 is a GPU's kind of number" in capfd.readouterr().err.splitlines()[-1]


def test_without_cudnn_convolutions_go_by_columns_which_is_said_once(folder, capfd):
    assert main(["train", "--solver", "solver.prototxt", "--device", "cuda"]) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if "cuDNN" in line]
    assert len(said) == 1 and "convolutions by columns and cuBLAS, not by cuDNN (no module 'cudnn' (pip" in said[0]


def test_bytes_of_workspace_that_make_no_sense_are_refused(folder, capfd):
    with pytest.raises(SystemExit):
        main(["train", "--solver", "solver.prototxt", "--workspace-bytes", "-5"])
    assert "bytes such as 64M or 1G are needed, got '-5'" in capfd.readouterr().err


def test_a_solver_that_asks_for_the_cpu_gets_it_unless_a_gpu_is_asked_for(folder, capfd):
    solver = folder / "solver.prototxt"
    solver.write_text(solver.read_text() + "solver_mode: CPU\n")
    assert main(["train", "--solver", "solver.prototxt"]) == 0
    assert "Use CPU." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--engine", "onednn"], "engine onednn computes on the CPU, and a GPU was asked for; take --engine auto"),
        (["--compute", "tf32", "--engine", "reference"], "the reference forms compute in float32 alone, not in tf32"),
        (["--gpu", "2"], "no GPU 2: there are 2, counted from 0"),
    ],
)
def test_what_a_gpu_cannot_do_is_told_in_one_line(folder, capfd, flags, said):
    assert main(["train", "--solver", "solver.prototxt", "--device", "cuda", *flags]) == 2
    assert said in capfd.readouterr().err.splitlines()[-1]


def test_auto_says_why_it_leaves_a_gpu_unused_and_cpu_does_not(folder, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr("scaffe.devices.gpu._is_gpu", lambda place: True)
    run = ["time", "--model", "net.prototxt", "--iterations", "1"]
    assert main(run) == 0
    said = capfd.readouterr().err
    assert "This machine has a GPU, which is not used: a GPU needs cupy, which is not installed" in said
    assert main([*run, "--device", "cpu"]) == 0
    assert "This machine has a GPU" not in capfd.readouterr().err
    assert main([*run, "--device", "cuda"]) == 2
    assert capfd.readouterr().err.startswith("scaffe: a GPU needs cupy")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("cudaErrorECCUncorrectable: uncorrectable ECC error", "look at nvidia-smi and at dmesg for Xid, then go on"),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX", "driver don't fit: update the driver, or install"),
    ],
)
def test_a_gpu_that_is_lost_outside_a_layer_is_told_in_one_line(folder, capfd, monkeypatch, text, advice):
    def update(*arguments):
        raise CUDARuntimeError(text)

    monkeypatch.setattr("scaffe.engines.cuda.solvers.CudaRule.update", update)
    assert main(["train", "--solver", "solver.prototxt", "--device", "cuda"]) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(f"scaffe: GPU 0 (0000:00:00.0) failed: {text}; ")
    assert advice in said.splitlines()[-1] and said.endswith("--snapshot auto\n")


@pytest.mark.parametrize("command", ["test --weights w", "time", "classify a.png --weights w", "extract-features w"])
def test_several_instances_on_a_gpu_are_refused_in_one_line(folder, capfd, command):
    from PIL import Image

    Image.new("L", (28, 28)).save("a.png")
    model = ["net.prototxt", "ip1", "f", "1"] if "extract" in command else ["--model", "net.prototxt"]
    flags = ["--device", "cuda", "--instances", "2", "--oversubscribe"]
    assert main([*command.split(), *model, *flags]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert "2 instances on a GPU: a rank with a GPU has one; start a rank for each GPU, or compute on the cores" in last
