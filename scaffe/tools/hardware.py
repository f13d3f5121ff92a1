"""The hardware and libraries that this process computes with: cores, caches, memory, libraries, GPUs; one line each."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from collectives import ArgumentError
from collectives.execution.device import nccl
from scaffe.devices import gpu
from scaffe.errors import LaunchError, OnednnError

GIB = 1 << 30


def processor_lines() -> Iterator[str]:
    """Iterate over lines about the cores that this process is bound to, their caches and their memory."""
    cores = sorted(os.sched_getaffinity(0))
    yield f"Processor: {_model()}"
    yield f"Cores: bound to {len(cores)} of {os.cpu_count()}: {' '.join(map(str, cores))}"
    yield f"SIMD: {_simd()}"
    yield f"Caches: {', '.join(_caches(cores[0])) or 'unknown'}"
    yield f"Memory: {_memory()}"
    yield f"NUMA nodes: {', '.join(_numa_nodes()) or 'unknown'}"


def library_lines(engine: object) -> Iterator[str]:
    """Iterate over lines about the libraries that compute, and `engine`, the one that `auto` selects."""
    from threadpoolctl import threadpool_info

    yield f"Engine for auto: {engine}"
    for library in threadpool_info():
        kind = {"blas": "BLAS", "openmp": "OpenMP"}.get(library["user_api"], library["user_api"])
        version = f" {library['version']}" if library.get("version") else ""
        yield f"{kind}: {library['internal_api']}{version}, {library['num_threads']} thread(s) ({library['filepath']})"


def gpu_lines(wanted: str | None = None) -> Iterator[str]:
    """Iterate over a line for each GPU, NCCL, and the GPUs' access to each other's memory.

    `wanted` is the value of Caffe's --gpu: None or "all" for all GPUs, or ids such as "0,2". Raise LaunchError for an
    id that is no number, or that is out of range on a machine with GPUs.
    """
    ids = None if wanted in (None, "", "all") else [gpu.parse_id(part) for part in str(wanted).split(",")]
    try:
        cupy, count = gpu.find()
    except LaunchError as error:
        yield f"GPUs: none: {error}"
        return
    for i in range(count) if ids is None else [gpu.check_id(i, count) for i in ids]:
        yield f"GPU {i}: {_gpu(cupy.cuda.runtime, i)}"
    yield f"NCCL: {_nccl()}"
    if count > 1:
        yield f"GPUs with peer access: {', '.join(_peers(cupy.cuda.runtime, count)) or 'none'}"


def _gpu(runtime: Any, i: int) -> str:
    """Return a GPU's name, memory, compute capability, PCI bus address and NUMA node."""
    found, bus = runtime.getDeviceProperties(i), runtime.deviceGetPCIBusId(i)
    node = gpu.numa_node(bus)
    where = bus.lower() + ("" if node is None else f" of NUMA node {node}")
    return (
        f"{found['name'].decode()}, {found['totalGlobalMem'] / GIB:.1f} GiB, compute {found['major']}."
        f"{found['minor']}, {where}"
    )


def _nccl() -> str:
    """Return NCCL's version, or why it can't be loaded."""
    try:
        return nccl.version(nccl.load())
    except ArgumentError as error:
        return f"none: {error}"


def _peers(runtime: Any, count: int) -> Iterator[str]:
    """Iterate over the pairs of GPUs that can access each other's memory."""
    for a, b in combinations(range(count), 2):
        if runtime.deviceCanAccessPeer(a, b) and runtime.deviceCanAccessPeer(b, a):
            yield f"{a} and {b}"


def _model() -> str:
    found = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _simd() -> str:
    """Return the instruction set that oneDNN uses, which ONEDNN_MAX_CPU_ISA may limit."""
    from scaffe.engines.onednn import library

    try:
        return f"{library.load().isa_name} (as oneDNN uses it)"
    except OnednnError as error:
        return f"unknown without oneDNN: {error}"


def _caches(core: int) -> Iterator[str]:
    kinds = {"Data": "d", "Instruction": "i"}
    for folder in sorted(Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*")):
        level, kind, size = (_read(folder / name).strip() for name in ("level", "type", "size"))
        if level:
            yield f"L{level}{kinds.get(kind, '')} {size}"


def _memory() -> str:
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE))
    total, free = (int(sizes.get(name, 0)) / (1 << 20) for name in ("MemTotal", "MemAvailable"))
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    limited = f", limited to {int(limit) / GIB:.1f} GiB" if limit.isdecimal() else ""
    return f"{total:.1f} GiB, {free:.1f} GiB of it available{limited}"


def _numa_nodes() -> Iterable[str]:
    folders = Path("/sys/devices/system/node").glob("node[0-9]*")
    for folder in sorted(folders, key=lambda folder: int(folder.name[4:])):
        yield f"{folder.name[4:]} with cores {_read(folder / 'cpulist').strip()}"


def _read(path: str | Path) -> str:
    """Return a system file's text, "" if it can't be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
