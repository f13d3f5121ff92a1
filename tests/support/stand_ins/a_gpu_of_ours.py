"""The GPU of this rank: GPU as scaffe sees it, DEVICE as collectives do, and its CuPy.

Where there is none they are stand-ins, over which the tests show at least that their calls fit the code. What holds on
a real GPU alone is marked `needs_gpu`. With SCAFFE_ON_GPU=1 a missing GPU is an error.
"""

import os

import numpy as np
import pytest
from cudnn_gpu import gpu_with
from fake_cudnn import Engine, FakeFrontend
from mpi4py import MPI
from recorded import Stream
from strict_arrays import StrictDevice, StrictGpu

from collectives import ArgumentError
from collectives.execution.device import cuda
from scaffe.devices import gpu
from scaffe.errors import LaunchError

HOLD = r"""
extern "C" __global__ void hold(const volatile int* go) { while (!*go) {} }
extern "C" __global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}
"""
CYCLES = 200_000_000  # some 0.1 s
MISSING = ""
try:
    GPU = gpu.choose("cuda")
    DEVICE = cuda.find()
except (LaunchError, ArgumentError) as error:
    if os.environ.get("SCAFFE_ON_GPU") == "1":
        raise
    MISSING = str(error)
    DEVICE = StrictDevice(seed=MPI.COMM_WORLD.rank, sharing=False)
    GPU = StrictGpu(DEVICE)

cupy = GPU.xp
needs_gpu = pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is a GPU")


def with_cudnn():
    """Return the GPU; over stand-ins, one whose cuDNN has two plans."""
    return gpu_with(FakeFrontend(Engine("eng0"), Engine("eng1"))) if MISSING else GPU


def hold(flag):
    """Let the current stream go on only when `flag`, a number in pinned memory, is 1."""
    if MISSING:
        gate = type("Gate", (), {"passed": property(lambda self: int(flag[0]))})()
        Stream.current().work.append((gate, 1, lambda: None))
    else:
        cupy.RawModule(code=HOLD).get_function("hold")((1,), (1,), (np.uint64(flag.ctypes.data),))


def spin():
    """Keep the current stream busy for about 0.1 s; the stand-in's streams are late as they are."""
    if not MISSING:
        cupy.RawModule(code=HOLD).get_function("spin")((1,), (1,), (np.int64(CYCLES),))
