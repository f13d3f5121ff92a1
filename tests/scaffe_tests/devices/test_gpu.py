"""Which GPU a rank takes, told from launchers' environments and a PCI bus that are made up; no GPU is needed."""

import os
import socket
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_cuda import FakeDevice, Runtime
from recorded import Stream

from scaffe.devices import gpu
from scaffe.errors import LaunchError


@pytest.fixture
def install(monkeypatch):
    """Let a fake of cupy find so many GPUs, or fail as the runtime does."""

    def install(count, **functions):
        runtime = Runtime(count)
        for name, function in functions.items():
            setattr(runtime, name, function)
        cuda = SimpleNamespace(runtime=runtime, Device=FakeDevice, Stream=Stream)
        cuda.get_current_stream = Stream.current
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
        FakeDevice.used.clear()
        Stream.entered().clear()

    return install


@pytest.fixture
def machine(tmp_path):
    """Two NUMA nodes with four cores and two GPUs each, the first and the third GPU on node 0."""
    for node, cores in enumerate(("0-1,4,6", "2-3,5,7")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cores + "\n")
    for i in range(4):
        folder = tmp_path / "bus/pci/devices" / f"0000:0{i}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{i % 2}\n")
    return tmp_path


class Marks:
    """Which GPUs are taken, in one process."""

    def __init__(self):
        self.taken = set()

    def __call__(self, bus):
        if bus in self.taken:
            return None
        self.taken.add(bus)
        return bus


def taken(ranks, cores, root, **how):
    """Return the GPUs that so many ranks take, one after the other, and whether each had to share."""
    marks = Marks()
    chosen = [
        gpu.choose("cuda", environment={"SLURM_LOCALID": str(rank)}, cores=cores(rank), root=root, take=marks, **how)
        for rank in range(ranks)
    ]
    return [one.number for one in chosen], [one.shared for one in chosen]


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_RANK": "7"}, 3),
        ({"MV2_COMM_WORLD_LOCAL_RANK": "2", "MV2_COMM_WORLD_RANK": "6"}, 2),
        ({"MPI_LOCALRANKID": "1", "PMI_RANK": "5"}, 1),
        ({"PALS_LOCAL_RANKID": "2", "PMI_RANK": "5"}, 2),
        ({"SLURM_LOCALID": "3", "SLURM_PROCID": "11", "PMIX_RANK": "11"}, 3),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "SLURM_LOCALID": "0"}, 3),  # mpirun within a batch script
        ({"PMIX_RANK": "4"}, 4),
        ({}, 0),
    ],
)
def test_the_local_rank_is_the_launchers(environment, rank):
    assert gpu.local_rank(environment) == rank


def test_ranks_on_all_cores_take_the_gpus_in_order(install, machine):
    install(4)
    assert taken(4, lambda rank: range(8), machine) == ([0, 1, 2, 3], [False] * 4)


@pytest.mark.parametrize("nodes", [(0, 0, 1, 1), (0, 1, 0, 1), (1, 1, 0, 0)])
def test_bound_ranks_take_gpus_of_their_own_node_and_none_twice(install, machine, nodes):
    install(4)
    cores = ((0, 1, 4, 6), (2, 3, 5, 7))
    numbers, shared = taken(4, lambda rank: cores[nodes[rank]], machine)
    assert [number % 2 for number in numbers] == list(nodes)
    assert sorted(numbers) == [0, 1, 2, 3] and not any(shared)


def test_where_the_near_gpus_are_taken_a_farther_one_is(install, machine):
    install(4)
    numbers, shared = taken(3, lambda rank: (0, 1), machine)
    assert numbers[:2] == [0, 2] and numbers[2] in (1, 3) and not any(shared)


def test_more_ranks_than_gpus_share(install, machine):
    install(2)
    numbers, shared = taken(5, lambda rank: range(8), machine)
    assert (numbers, shared) == ([0, 1, 0, 1, 0], [False, False, True, True, True])


def test_a_machine_that_knows_no_numa_nodes_has_no_near_gpus(install, machine, tmp_path):
    (machine / "bus/pci/devices/0000:00:00.0/numa_node").write_text("-1\n")
    install(2)
    assert gpu.preference(["0000:00:00.0", "no"], 1, [0], machine) == [1, 0]


def test_the_ids_are_the_ranks_in_turn(install, machine):
    install(4)
    assert taken(3, lambda rank: (0, 1), machine, ids="3,1") == ([3, 1, 3], [False, False, True])


def test_the_one_visible_gpu_of_a_task_is_taken_whatever_the_local_rank(install, machine):
    install(1)
    chosen = gpu.choose("auto", environment={"SLURM_LOCALID": "3"}, cores=[7], root=machine, take=Marks())
    assert (chosen.number, chosen.bus, chosen.shared) == (0, "0000:00:00.0", False)


def test_the_gpu_is_in_use_and_has_its_context_when_it_is_chosen(install, machine):
    freed = []
    install(4, free=freed.append)
    gpu.choose("cuda", environment={"SLURM_LOCALID": "2"}, cores=range(8), root=machine, take=Marks())
    assert (FakeDevice.used, freed) == ([2], [0])


def test_all_threads_of_a_rank_compute_on_one_stream_that_waits_for_no_other(install, machine):
    install(1)
    chosen = gpu.choose("cuda", environment={}, cores=[0], root=machine, take=Marks())
    assert Stream.current() is chosen.stream and chosen.stream.non_blocking
    with Stream(non_blocking=True):
        assert Stream.current() is not chosen.stream
    chosen.use()
    assert Stream.entered() == [chosen.stream]


def test_a_mark_is_one_processs_until_it_lets_go():
    bus = f"a bus of process {os.getpid()}"
    first = gpu._take(bus)
    assert isinstance(first, socket.socket)
    assert gpu._take(bus) is None
    first.close()
    gpu._take(bus).close()


def test_auto_takes_the_cpu_where_there_is_no_gpu(install, monkeypatch):
    install(0)
    assert gpu.choose("auto") is None
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert gpu.choose("auto") is None


class CudaError(Exception):
    """What cupy raises: the driver's number and name of an error."""

    def __init__(self, status, text):
        self.status = status
        super().__init__(text)


def raising(error):
    def function(*arguments):
        raise error

    return function


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (
            {"getDeviceCount": raising(CudaError(100, "no\ndevice"))},
            "no GPU can be used: no device; look at nvidia-smi",
        ),
        (
            {"getDeviceCount": raising(CudaError(803, "cudaErrorSystemDriverMismatch: of two"))},
            "no GPU can be used: .*; the driver's kernel module and its libcuda don't fit: .* reboot",
        ),
        (
            {"getDeviceCount": raising(CudaError(802, "cudaErrorSystemNotReady: not yet"))},
            "not yet; the node's switches are not set up: start nvidia-fabricmanager",
        ),
        ({"getDeviceCount": lambda: 0}, "look at CUDA_VISIBLE_DEVICES"),
        ({"getDeviceCount": raising(CudaError(35, "old")), "driverGetVersion": lambda: 0}, "no NVIDIA driver"),
        ({"getDeviceCount": raising(CudaError(35, "old"))}, "driver is for CUDA 12.8 at most, .* of 13.1: update"),
        ({"free": raising(CudaError(46, "busy"))}, r"GPU 0 \(0000:00:00.0\) can't be used: busy; look at nvidia-smi"),
        (
            {"free": raising(CudaError(46, "cudaErrorDevicesUnavailable: busy"))},
            "can't be used: .*busy; another process may have it to itself: see nvidia-smi",
        ),
    ],
)
def test_a_gpu_that_was_asked_for_and_cannot_be_had_is_an_error_that_says_why(install, machine, functions, said):
    install(1, **functions)
    with pytest.raises(LaunchError, match=said):
        gpu.choose("cuda", root=machine, take=Marks())


def shows(machine: Path) -> Path:
    """Let the GPUs of a machine be NVIDIA's."""
    for place in machine.glob("bus/pci/devices/*"):
        (place / "vendor").write_text("0x10de\n")
        (place / "class").write_text("0x030200\n")
    return machine


def test_without_cupy_an_asked_for_gpu_is_an_error(monkeypatch, machine):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(LaunchError, match=r"needs cupy, which is not installed .*'scaffe\[cuda\]'\)$"):
        gpu.choose("auto", "0", root=shows(machine))


@pytest.mark.parametrize("ids", ["all", "0"])
def test_without_a_gpu_an_asked_for_one_is_an_error_that_names_the_cpu(monkeypatch, tmp_path, ids):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(gpu, "is_seen", partial(gpu.is_seen, devices=tmp_path))
    with pytest.raises(LaunchError, match="shows no NVIDIA GPU: leave --gpu out, or give --device cpu, to compute"):
        gpu.choose("auto", ids, root=tmp_path)


@pytest.mark.parametrize(
    ("ids", "said"), [("first", "'all' or ids such as 0,2, got 'first'"), ("4", "no GPU 4: there are 4")]
)
def test_ids_that_are_none_are_refused(install, ids, said):
    install(4)
    with pytest.raises(LaunchError, match=said):
        gpu.choose("auto", ids)


def test_the_cpu_and_a_gpu_at_once_are_refused():
    with pytest.raises(LaunchError, match="--device cpu and --gpu 0 say two things"):
        gpu.choose("cpu", "0")


@pytest.fixture
def gpus_of(tmp_path):
    """Say of a machine with these PCI devices why its GPU is not used."""

    def left_unused(*devices, visible="0"):
        for number, (vendor, kind) in enumerate(devices):
            folder = tmp_path / f"bus/pci/devices/0000:0{number}:00.0"
            folder.mkdir(parents=True)
            (folder / "vendor").write_text(f"{vendor}\n")
            (folder / "class").write_text(f"{kind}\n")
        return gpu.left_unused(tmp_path, tmp_path / "dev", {"CUDA_VISIBLE_DEVICES": visible})

    return left_unused


A_GPU, A_SOUND_CARD, ANOTHERS_GPU = ("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x1002", "0x030000")


class Broken:
    """An import hook under which cupy fails to load, as it does where a library is of another version."""

    def find_spec(self, name, path=None, target=None):
        if name == "cupy":
            raise ImportError("=== Failed to import CuPy. ===") from ImportError("libcudart.so.13: no\nsuch file")


def test_a_gpu_that_is_left_unused_is_told_with_the_reason(gpus_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "which is not installed" in gpus_of(A_SOUND_CARD, A_GPU)
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert gpus_of() == "cupy can't be loaded: libcudart.so.13: no such file; install the cupy of this CUDA's version"
    assert gpus_of(visible="") == ""  # whoever hides it knows


@pytest.mark.parametrize("devices", [(), (A_SOUND_CARD, ANOTHERS_GPU)])
def test_a_machine_without_a_gpu_of_this_kind_has_none_left_unused(gpus_of, monkeypatch, devices):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert gpus_of(*devices) == ""


def test_a_gpu_that_can_be_used_is_not_left_unused(gpus_of, install):
    install(1)
    assert gpus_of(A_GPU) == ""
