"""Launcher: compiles kernels when they are first used, and launches them on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.compute import DEFAULT, Compute
from scaffe.devices.gpu import Gpu
from scaffe.engines.cuda import cudnn
from scaffe.engines.cuda.cudnn import Cudnn
from scaffe.engines.cuda.cupy_engine import Cupy
from scaffe.engines.cuda.products import Products
from scaffe.errors import CudnnError
from scaffe.monitor.log import log

FOLDER = Path(__file__).parent / "kernels"
FLAGS = ("--std=c++17", "--fmad=false")  # products and sums rounded one by one, as on the host
# CuPy appends -ftz=true, and the last such option counts: denormal float32 numbers are zeros in kernels.
THREADS = 256  # of a block, as common.cu says
IDLE = 1_000_000  # cycles, half a millisecond: longer than Python takes for a few launches
BLOCKS = 8192  # at most, for kernels whose threads take several elements: enough to fill any GPU


def files() -> list[str]:
    """Return the names of the files with kernels."""
    return sorted(path.stem for path in FOLDER.glob("*.cu") if path.stem != "common")


def source(file: str) -> str:
    """Return what the compiler gets for a file of kernels."""
    return (FOLDER / "common.cu").read_text() + (FOLDER / f"{file}.cu").read_text()


class Launcher(Cupy):
    """The kernels on one GPU. Beside a net's engine, they serve rules and data layers alike."""

    def __init__(self, gpu: Gpu, compute: Compute = DEFAULT):
        super().__init__(gpu, compute)
        self.products = Products(gpu, compute.numbers)
        self.recording = False  # are launches being recorded, to be repeated?
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}  # by file and name

    @property
    def cudnn(self) -> Cudnn | None:
        """cuDNN on this GPU; None, and logged once, where it can't be loaded."""
        known = self.gpu.libraries
        if "cudnn" not in known:
            known["cudnn"] = _load_cudnn()
        found: Cudnn | None = known["cudnn"]
        return found

    def drop_scratch(self) -> None:
        """Free the scratch memory: what it was needed for is over."""
        self._scratch_memory.clear()
        self.scratch_version += 1

    @property
    def stream(self) -> int:
        """Pointer to the calling thread's stream."""
        return int(self.gpu.xp.cuda.get_current_stream().ptr)

    def elapsed(self, run: Callable[[], object]) -> float:
        """Return the seconds that what `run` puts on the stream takes there.

        The stream is kept busy until all of it has been put there: else the time would be that of Python's calls.
        """
        cuda = self.gpu.xp.cuda
        start, stop = cuda.Event(), cuda.Event()
        self.launch("idle", "idle", (1,), np.int64(IDLE))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        return float(cuda.get_elapsed_time(start, stop)) / 1000

    def multiply(self, a: Any, b: Any, out: Any, add: bool = False, bias: Any = None) -> None:
        self.products(a, b, out, add, bias)

    def over(self, file: str, kernel: str, count: int, *arguments: Any, each: int = 1) -> None:
        """Launch a kernel over `count` elements, its first argument, with `each` elements for a thread.

        Python's ints are C's int, floats C's float.
        """
        if count:
            blocks = min(BLOCKS, -(-count // (each * THREADS)))
            self.launch(file, kernel, (blocks,), np.int64(count), *arguments)

    def launch(self, file: str, kernel: str, blocks: tuple[int, ...], *arguments: Any) -> None:
        """Launch a kernel with so many blocks, arguments as they are but for Python's numbers."""
        function = self._kernels.get((file, kernel)) or self._function(file, kernel)
        function(blocks, (THREADS,), tuple(map(_typed, arguments)))

    def _function(self, file: str, kernel: str) -> Any:
        """Return a kernel, compiled if it is the first of its file."""
        if file not in self._modules:
            self._modules[file] = self.gpu.xp.RawModule(code=source(file), options=FLAGS)
        self._kernels[file, kernel] = self._modules[file].get_function(kernel)
        return self._kernels[file, kernel]


def _load_cudnn() -> Cudnn | None:
    try:
        return cudnn.load()
    except CudnnError as error:
        log.info("Engine: convolutions by columns and cuBLAS, not by cuDNN (%s)", error)
        return None


def _typed(value: Any) -> Any:
    """Return a number with the type that a kernel expects of it."""
    if isinstance(value, int):
        return np.int32(value)
    return np.float32(value) if type(value) is float else value


def divisor(number: int) -> np.uint64:
    """Return a divisor as common.cu's Divisor takes it: by what to multiply, and in the upper half how far to shift."""
    shift = (number - 1).bit_length()
    return np.uint64((((1 << shift) - number << 32) // number + 1) | shift << 32)
