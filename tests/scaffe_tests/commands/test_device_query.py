"""scaffe device-query: what it says is what the system, the libraries and a stand-in for cupy say."""

import ctypes
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from both_engines import needs_onednn
from conftest import environment
from fake_cuda import Runtime

from scaffe.cli import main
from scaffe.errors import LaunchError
from scaffe.tools import hardware


def printed(*arguments, **variables):
    """Return the lines that the command prints in a process of its own, by what stands before the colon."""
    command = [sys.executable, "-m", "scaffe", "device-query", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, env={**environment(), **variables})
    assert run.returncode == 0, run.stderr
    return dict(line.split(": ", 1) for line in run.stdout.splitlines())


@pytest.fixture(scope="module")
def lines():
    return printed("-gpu", "all")


def test_cores_and_memory_are_the_systems(lines):
    cores = sorted(os.sched_getaffinity(0))
    assert lines["Cores"] == f"bound to {len(cores)} of {os.cpu_count()}: {' '.join(map(str, cores))}"
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert float(lines["Memory"].split()[0]) == pytest.approx(pages / 2**30, abs=0.1)


@needs_onednn
def test_the_instructions_are_those_that_onednn_is_limited_to():
    found = printed(ONEDNN_MAX_CPU_ISA="SSE41")
    assert found["SIMD"] == "SSE4.1 (as oneDNN uses it)"
    assert re.fullmatch(r"oneDNN 3\.\d+\.\d+ \(.*libdnnl.*\)", found["Engine for auto"])


def test_without_onednn_the_reference_forms_are_taken():
    found = printed(SCAFFE_DNNL="/no/libdnnl.so.3")
    assert found["Engine for auto"] == "reference, in numpy"
    assert "can't load oneDNN from /no/libdnnl.so.3" in found["SIMD"]


def test_mpi_is_the_library_that_is_loaded(lines):
    from mpi4py import MPI

    assert MPI.Get_library_version().startswith(lines["MPI"])
    level = ("single", "funneled", "serialized", "multiple")[MPI.Query_thread()]
    assert lines["MPI standard"] == f"{'.'.join(map(str, MPI.Get_version()))}; threads: {level}"
    answer, path = re.fullmatch(r"(yes|no) \(MPIX_Query_cuda_support of (.*)\)", lines["GPU-aware MPI"]).groups()
    assert (answer == "yes") == bool(ctypes.CDLL(path).MPIX_Query_cuda_support())


def test_without_mpi_the_rest_is_told_all_the_same():
    found = printed(MPI4PY_LIBMPI="/no/libmpi.so")
    assert "no MPI can be loaded" in found["MPI"]
    assert "Cores" in found and "GPUs" in found


@pytest.mark.mpi_skip
def test_ranks_are_told_once_with_their_cores(mpirun):
    run = mpirun(2, sys.executable, "-m", "scaffe", "device-query")
    assert run.returncode == 0
    assert run.stdout.count("Processor:") == 1
    assert re.search(r"^Ranks on \S+: rank 0 on cores \S+ rank 1 on cores \S+$", run.stdout, re.M)


@pytest.fixture
def gpus(monkeypatch):
    def install(count, nccl=None):
        library = SimpleNamespace(available=nccl is not None, get_version=lambda: nccl)
        cuda = SimpleNamespace(runtime=Runtime(count), nccl=library)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
        monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)

    return install


def test_without_cupy_there_are_no_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert [*hardware.gpu_lines("all")] == [
        "GPUs: none: a GPU needs cupy, which is not installed (pip install 'scaffe[cuda]')"
    ]


def test_a_driver_that_finds_none_is_quoted_in_one_line(gpus):
    gpus(0)
    (line,) = hardware.gpu_lines()
    assert line.startswith("GPUs: none: no GPU can be used: cudaErrorNoDevice: no CUDA-capable device is detected;")


def test_gpus_are_told_all_or_by_their_ids(gpus):
    gpus(2, nccl=22809)
    both = ["GPU 0: GH0, 16.0 GiB, compute 9.0, 0000:00:00.0", "GPU 1: GH1, 32.0 GiB, compute 9.1, 0000:01:00.0"]
    peers = ["NCCL: 2.28.9", "GPUs with peer access: 0 and 1"]
    assert [*hardware.gpu_lines("all")] == [*hardware.gpu_lines()] == both + peers
    assert [*hardware.gpu_lines("1")] == both[1:] + peers
    with pytest.raises(LaunchError, match="no GPU 2: there are 2, counted from 0"):
        [*hardware.gpu_lines("0,2")]


def test_without_nccl_it_is_said_what_to_install(gpus):
    gpus(1)
    assert [*hardware.gpu_lines()][-1] == "NCCL: none: NCCL can't be loaded: pip install nvidia-nccl-cu13"


def test_pairs_of_gpus_without_access_are_left_out(gpus):
    gpus(3)
    assert [*hardware.gpu_lines()][-1] == "GPUs with peer access: 0 and 1, 1 and 2"


def test_an_id_that_is_none_is_told_in_one_line(capsys):
    assert main(["device-query", "--gpu", "first"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "scaffe: --gpu takes 'all' or ids such as 0,2, got 'first'"
