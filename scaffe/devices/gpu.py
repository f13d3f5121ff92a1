"""Gpu: the one GPU that a rank computes on, chosen before MPI starts, as MPI libraries take the GPU they find in use.

A rank puts its GPU to use by cudaSetDevice, not by CUDA_VISIBLE_DEVICES: that would hide the others, which ranks of a
node map to sum each other's gradients, and would come too late once CUDA has been asked how many there are. The
price is that each new thread has to call `use`.

Ranks choose without a message. Each takes, of the GPUs that it may have, the nearest that no other rank of this
machine has taken, and marks it as taken with a socket's name, which the kernel forgets when the process ends. Ranks
that come equally near take theirs in the order of their local ranks.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.errors import LaunchError

LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI's mpirun
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH
    "MPI_LOCALRANKID",  # Hydra, which starts MPICH and Intel MPI: PMI knows no local rank
    "PALS_LOCAL_RANKID",  # Cray MPICH
    "SLURM_LOCALID",  # srun; a batch script has it too, and hands it on to an mpirun's ranks: so it comes last
    "PMIX_RANK",  # the world's rank, where no local rank is known
    "PMI_RANK",
)
# CuPy's classes of errors, and collectives' own.
FAILURES = "CUDARuntimeError", "CUDADriverError", "CUBLASError", "NVRTCError", "NcclError", "DeviceFault"
NO_DRIVER = 35  # cudaErrorInsufficientDriver, which a machine without any gives as well
# What to do about errors, by what their names have in them; the first that fits counts.
ADVICE = {
    "NoKernelImage|NO_BINARY|UnsupportedPtx|UNSUPPORTED_PTX|InvalidPtx|INVALID_PTX": (
        "cupy's CUDA libraries and this GPU or its driver don't fit: update the driver, or install the cupy of its CUDA"
    ),
    "SystemNotReady|SYSTEM_NOT_READY": "the node's switches are not set up: start nvidia-fabricmanager",
    "SystemDriverMismatch|CompatNotSupported|SYSTEM_DRIVER_MISMATCH": (
        "the driver's kernel module and its libcuda don't fit: install one driver, then reboot"
    ),
    "DevicesUnavailable|DEVICE_UNAVAILABLE": "another process may have it to itself: see nvidia-smi",
    "InvalidDevice|NoDevice": "look at nvidia-smi and at CUDA_VISIBLE_DEVICES",
}
NONE_HERE = "; and this machine shows no NVIDIA GPU: leave --gpu out, or give --device cpu, to compute on the CPU"
LOOK = "look at nvidia-smi and at dmesg for Xid"


class Late:
    """Numbers on their way from a GPU to the host's pinned memory."""

    def __init__(self, numbers: np.ndarray, event: Any):
        self._numbers, self._event = numbers, event

    def send(self, array: Any) -> None:
        """Copy an array here, in the order of the current stream; return at once."""
        array.get(out=self._numbers, blocking=False)
        self._event.record()

    def read(self) -> list[float]:
        """Return the numbers, waiting only until the stream has come to where they were sent."""
        self._event.synchronize()
        return [float(number) for number in self._numbers]


@dataclass
class Gpu:
    """A GPU in use: its number among those that this process sees, its place on the PCI bus, and CuPy."""

    number: int
    bus: str
    xp: ModuleType
    shared: bool = False  # another rank had every GPU that this one may have
    claim: Any = field(default=None, repr=False)  # the socket whose name marks it as taken
    device: Any = None  # as collectives see it, None for CuPy's current one
    stream: Any = field(default=None, repr=False)  # what all that this rank computes is put on, in order
    libraries: dict[str, Any] = field(default_factory=dict, repr=False)  # that engines have loaded for it, by name

    def use(self) -> None:
        """Make this GPU, and the rank's one compute stream, current in the calling thread."""
        self.xp.cuda.Device(self.number).use()
        if self.stream is None:
            self.stream = self.xp.cuda.Stream(non_blocking=True)
        if self.xp.cuda.get_current_stream() != self.stream:
            self.stream.__enter__()  # not use(): leaving a block of another stream returns to this one

    def wait(self) -> None:
        """Wait until all work that the calling thread has put on its stream is done."""
        self.xp.cuda.get_current_stream().synchronize()

    def finish(self) -> None:
        """Wait until all work of this process on the GPU is done, on whatever stream."""
        self.xp.cuda.Device(self.number).synchronize()

    @cached_property
    def capability(self) -> int:
        """Its compute capability, 90 for 9.0."""
        found = self.xp.cuda.runtime.getDeviceProperties(self.number)
        return int(10 * found["major"] + found["minor"])

    def late(self, count: int) -> Late:
        """Return room on the host for so many float64 numbers that nobody waits for until they are read."""
        memory = self.xp.cuda.alloc_pinned_memory(8 * count)
        return Late(np.frombuffer(memory, np.float64, count), self.xp.cuda.Event(disable_timing=True))

    def place(self, array: Any) -> int:
        """Return the address of an array."""
        return int(array.data.ptr)

    @property
    def free(self) -> int:
        """Bytes of its memory that nobody has."""
        return int(self.xp.cuda.runtime.memGetInfo()[0])

    @property
    def model(self) -> str:
        """Its name, as NVIDIA sells it."""
        name: bytes = self.xp.cuda.runtime.getDeviceProperties(self.number)["name"]
        return name.decode()

    def trim(self) -> None:
        """Return memory to the GPU that CuPy keeps for later arrays."""
        self.xp.get_default_memory_pool().free_all_blocks()

    def explain(self, error: BaseException) -> str:
        """Say in a line what an error of CuPy's means and what to do, "" where it is none of CuPy's."""
        kind, text = type(error).__name__, _line(error)
        if kind == "OutOfMemoryError":
            return f"out of memory of GPU {self.number}: {_wanted(text)}, {self.free} are free"
        if kind == "CompileException":
            return f"a kernel does not compile for GPU {self.number}, cupy's NVRTC and this GPU don't fit: {text[:200]}"
        if kind == "ImportError" or kind == "DynamicLibNotFoundError":
            return f"a CUDA library is missing: {text[:200]}; install those of cupy's CUDA version, as cupy[ctk] does"
        if kind == "CudnnError":
            return f"cuDNN failed: {text[:200]}; --plan fixed takes another plan, nvidia-smi tells how the GPU is"
        if kind == "CublasError":
            return f"cuBLAS failed: {text[:300]}; nvidia-smi tells how the GPU is"
        if kind in FAILURES:
            return (
                f"GPU {self.number} ({self.bus}) failed: {text}; {_advice(text, LOOK)}, then go on from the newest "
                "snapshot with --snapshot auto"
            )
        return ""

    def __str__(self) -> str:
        name = self.xp.cuda.runtime.getDeviceProperties(self.number)["name"].decode()
        return f"GPU {self.number}: {name} at {self.bus}"


def _wanted(text: str) -> str:
    """Return the bytes that an allocation asked for, from CuPy's message."""
    found = re.search(r"allocating ([\d,]+) bytes", text)
    return f"{found.group(1).replace(',', '')} bytes wanted" if found else text


def choose(
    device: str,
    ids: str | None = None,
    environment: Mapping[str, str] = os.environ,
    cores: Sequence[int] | None = None,
    root: Path = Path("/sys"),
    take: Callable[[str], Any] | None = None,
) -> Gpu | None:
    """Return the GPU of this rank, in use; None for the CPU. Called before MPI starts.

    `device` "cuda" and `ids`, Caffe's --gpu, ask for one; "auto" takes one if there is one. With ids such as 0,2 local
    rank r takes the r-th of them, and the first again after the last; else each takes the nearest to its `cores` that
    is free. Raise LaunchError where a GPU was asked for and can't be had, or both a GPU and the CPU were asked for.
    """
    if device == "cpu":
        if ids is not None:
            raise LaunchError(f"--device cpu and --gpu {ids} say two things; give one of them")
        return None
    asked = device == "cuda" or ids is not None
    wanted = [] if ids in (None, "", "all") else [parse_id(part) for part in str(ids).split(",")]
    try:
        cupy, count = find()
    except LaunchError as error:
        if asked:
            raise LaunchError(f"{error}{'' if is_seen(root) else NONE_HERE}") from None
        return None
    rank = local_rank(environment)
    buses = [cupy.cuda.runtime.deviceGetPCIBusId(i).lower() for i in range(count)]
    if wanted:
        number = check_id(wanted[rank % len(wanted)], count)
        claim = (take or _take)(buses[number])
        gpu = Gpu(number, buses[number], cupy, claim is None, claim)
    else:
        order = preference(buses, rank, sorted(os.sched_getaffinity(0)) if cores is None else cores, root)
        claims = ((i, (take or _take)(buses[i])) for i in order)
        number, claim = next(((i, claim) for i, claim in claims if claim is not None), (order[0], None))
        gpu = Gpu(number, buses[number], cupy, claim is None, claim)
    _start(gpu)
    return gpu


def find() -> tuple[ModuleType, int]:
    """Return CuPy and how many GPUs it finds. Raise LaunchError, which says what to do, where there is none."""
    try:
        import cupy

        runtime = cupy.cuda.runtime
    except Exception as error:  # of whatever cupy, or a library that it needs, finds wrong
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise LaunchError("a GPU needs cupy, which is not installed (pip install 'scaffe[cuda]')") from None
        raise LaunchError(f"cupy can't be loaded: {_cause(error)}; install the cupy of this CUDA's version") from None
    try:
        count = runtime.getDeviceCount()
    except Exception as error:  # cupy's, whose class needs a cupy that works
        raise LaunchError(_why_none(runtime, error)) from None
    if not count:
        raise LaunchError("no GPU is visible to this process; look at CUDA_VISIBLE_DEVICES, or use --device cpu")
    return cupy, count


def left_unused(
    root: Path = Path("/sys"), devices: Path = Path("/dev"), environment: Mapping[str, str] = os.environ
) -> str:
    """Return why a GPU that this machine has can't be used, "" if it can, or there is none, or none is to be seen."""
    hidden = environment.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1", "NoDevFiles")
    if hidden or not is_seen(root, devices):
        return ""
    try:
        find()
    except LaunchError as error:
        return str(error)
    return ""


def is_seen(root: Path = Path("/sys"), devices: Path = Path("/dev")) -> bool:
    """Say whether this machine, or container, shows an NVIDIA GPU, whether or not it can be used."""
    return any(devices.glob("nvidia[0-9]*")) or any(map(_is_gpu, root.glob("bus/pci/devices/*")))


def _is_gpu(place: Path) -> bool:
    """Return whether a PCI device computes or displays, and is NVIDIA's."""
    try:
        return (place / "vendor").read_text().strip() == "0x10de" and (place / "class").read_text().startswith("0x03")
    except OSError:
        return False


def _why_none(runtime: Any, error: Exception) -> str:
    """Return why there is no GPU, and what to do."""
    try:
        driver, library = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    except Exception:  # the same library that has just failed
        driver = library = 0
    if getattr(error, "status", 0) == NO_DRIVER and driver:
        return (
            f"the NVIDIA driver is for CUDA {_version(driver)} at most, and cupy has libraries of {_version(library)}: "
            "update the driver, or take an older cupy"
        )
    if getattr(error, "status", 0) == NO_DRIVER:
        return "no NVIDIA driver is installed on this machine, or this container has no access to it; use --device cpu"
    return f"no GPU can be used: {_line(error)}; {_advice(_line(error), LOOK)}, or use --device cpu"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _start(gpu: Gpu) -> None:
    """Make the GPU current and create its context, which CUDA-aware MPI uses if it exists."""
    try:
        gpu.use()
        gpu.xp.cuda.runtime.free(0)
    except Exception as error:  # cupy's
        text = _line(error)
        raise LaunchError(f"GPU {gpu.number} ({gpu.bus}) can't be used: {text}; {_advice(text, LOOK)}") from None


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank in its node, from the launcher's environment; 0 if that does not hold it."""
    return next((int(environment[name]) for name in LOCAL_RANKS if environment.get(name, "").isdecimal()), 0)


def preference(buses: Sequence[str], rank: int, cores: Sequence[int], root: Path = Path("/sys")) -> list[int]:
    """Return the numbers of the GPUs at those places of the PCI bus, the one to take first in front.

    Those on a NUMA node of the rank's cores come before the others; among equals, rank r begins with the r-th.
    """
    nodes = {node for node in map(lambda bus: numa_node(bus, root), buses) if node is not None}
    near_nodes = {node for node in nodes if not set(cores).isdisjoint(_cores(node, root))}
    near = [i for i, bus in enumerate(buses) if not near_nodes or numa_node(bus, root) in near_nodes]
    far = [i for i in range(len(buses)) if i not in near]
    return [*_turned(near, rank), *_turned(far, rank)]


def _turned(numbers: list[int], by: int) -> list[int]:
    start = by % len(numbers) if numbers else 0
    return numbers[start:] + numbers[:start]


def numa_node(bus: str, root: Path = Path("/sys")) -> int | None:
    """Return the NUMA node of a PCI device, None where the system does not know it."""
    try:
        node = int((root / "bus/pci/devices" / bus.lower() / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _cores(node: int, root: Path) -> set[int]:
    """Return the cores of a NUMA node."""
    try:
        text = (root / f"devices/system/node/node{node}/cpulist").read_text()
    except OSError:
        return set()
    ranges = [(int(first), int(last or first)) for first, last in re.findall(r"(\d+)(?:-(\d+))?", text)]
    return {core for first, last in ranges for core in range(first, last + 1)}


def _take(bus: str) -> Any:
    """Mark a GPU as taken; return what holds the mark, None if another rank has it."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0scaffe-gpu-{bus}")
    except OSError:
        mark.close()
        return None
    return mark


def parse_id(text: str) -> int:
    """Return the number of a GPU. Raise LaunchError where it is none."""
    if not text.isdecimal():
        raise LaunchError(f"--gpu takes 'all' or ids such as 0,2, got '{text}'")
    return int(text)


def check_id(number: int, count: int) -> int:
    """Return the number of a GPU. Raise LaunchError unless there are so many."""
    if number >= count:
        raise LaunchError(f"no GPU {number}: there are {count}, counted from 0")
    return number


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _advice(text: str, otherwise: str) -> str:
    return next((advice for names, advice in ADVICE.items() if re.search(names, text)), otherwise)


def _cause(error: BaseException) -> str:
    """Return what could not be loaded: the cause of CuPy's error, whose own text is a page."""
    return _line(error.__cause__ or error)[:200]
