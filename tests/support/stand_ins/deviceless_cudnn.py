"""cuDNN itself where there is no GPU: it plans for a GPU that is described to it, and runs nothing.

The library wants the driver's libcuda.so.1 to be there; where it is not, a stub that refuses every call stands for it.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import tempfile
from pathlib import Path

import pytest
from host_kernels import needs_compiler

from scaffe.engines.cuda.cudnn import Cudnn

DRIVER = """cuGetErrorString cuModuleGetFunction cuModuleLoadData cuModuleUnload cuTensorMapEncodeIm2col
cuTensorMapEncodeTiled cuOccupancyMaxPotentialClusterSize cuLaunchKernel cuLaunchCooperativeKernel cuLaunchKernelEx
cuInit cuDriverGetVersion cuGetProcAddress cuGetProcAddress_v2"""
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
COMMON = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024,
    "oversizedSharedMemoryPerBlock": 0, "maxRegistersPerSM": 65536, "maxThreadsPerBlock": 1024, "pciDeviceId": 0,
    "isTccDriver": 0, "supportCoopLaunch": 1, "cudaDeviceId": 0, "driverVer": 13000,
}  # fmt: skip
DESCRIBED = {
    "T4": {
        "deviceVer": 750, "multiProcessorCount": 40, "maxSharedMemoryPerBlockOptin": 65536, "maxCtasPerSM": 16,
        "maxThreadsPerSM": 1024, "totalGlobalMem": 15 << 30, "smClockRateKHz": 1590000, "memClockRateKHz": 5001000,
        "memoryBusWidth": 256, "l2CacheSize": 4 << 20, "deviceName": "Tesla T4", "reservedSharedMemoryPerBlock": 0,
    },
    "A100": {
        "deviceVer": 800, "multiProcessorCount": 108, "maxSharedMemoryPerBlockOptin": 166912, "maxCtasPerSM": 32,
        "maxThreadsPerSM": 2048, "totalGlobalMem": 80 << 30, "smClockRateKHz": 1410000, "memClockRateKHz": 1593000,
        "memoryBusWidth": 5120, "l2CacheSize": 40 << 20, "deviceName": "NVIDIA A100",
    },
    "H200": {
        "deviceVer": 900, "multiProcessorCount": 132, "maxSharedMemoryPerBlockOptin": 232448, "maxCtasPerSM": 32,
        "maxThreadsPerSM": 2048, "totalGlobalMem": 140 << 30, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
        "memoryBusWidth": 6144, "l2CacheSize": 60 << 20, "deviceName": "NVIDIA H200",
    },
}  # fmt: skip


def library(gpu: str) -> Cudnn:
    """Return cuDNN, planning for that GPU; skip the test where it is not installed."""
    _driver()
    cudnn = pytest.importorskip("cudnn", reason="no cuDNN: pip install nvidia-cudnn-cu13 'nvidia-cudnn-frontend<=1.28'")
    if not hasattr(cudnn, "create_device_properties"):
        pytest.skip("this frontend of cuDNN plans for no GPU that is not there")
    return Cudnn(cudnn, device=cudnn.create_device_properties(json.dumps(COMMON | DESCRIBED[gpu])))


def _driver() -> None:
    """Have a libcuda.so.1 in this process."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        needs_compiler()
        folder = Path(tempfile.mkdtemp(prefix="driver"))
        source, made = folder / "stub.c", folder / "libcuda.so.1"
        source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in DRIVER.split()))
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", source, "-o", made], check=True)
        ctypes.CDLL(str(made), ctypes.RTLD_GLOBAL)
