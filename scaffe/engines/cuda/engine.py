"""Engine: compiles kernels when they are first used, and launches them on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.engines.cuda.products import Products

if TYPE_CHECKING:
    from scaffe.devices.gpu import Gpu
    from scaffe.engines.cuda.report import Report

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


class Engine:
    """The kernels on one GPU."""

    name = "cuda"

    def __init__(self, gpu: Gpu, compute: str = "float32"):
        self.gpu, self.compute = gpu, compute
        self.multiply = Products(gpu.xp, compute)
        self._modules: dict[str, Any] = {}
        self._scratch: dict[str, Any] = {}
        self.version = 0  # changes when scratch memory comes to lie elsewhere
        self.recording = False  # are launches being recorded, to be repeated?

    def scratch(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array with any content, whose memory all who ask for that name have in turn.

        It grows in the first passes and stays where it is from then on.
        """
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        memory = self._scratch.get(name)
        if memory is None or memory.nbytes < nbytes:
            self._scratch[name] = None  # the old one's memory may serve the new one
            memory = self._scratch[name] = self.gpu.xp.zeros(nbytes, np.uint8)
            self.version += 1
        return memory[:nbytes].view(dtype).reshape(shape)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all that memory."""
        return sum(memory.nbytes for memory in self._scratch.values() if memory is not None)

    def drop_scratch(self) -> None:
        """Let go of that memory: what it was needed for won't be done again."""
        self._scratch.clear()
        self.version += 1

    @property
    def stream(self) -> int:
        """Pointer to the calling thread's stream."""
        return self.gpu.xp.cuda.get_current_stream().ptr

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
        return cuda.get_elapsed_time(start, stop) / 1000

    @cached_property
    def report(self) -> Report:
        """What the host is told of a net's passes; a net has an engine of its own."""
        from scaffe.engines.cuda.report import Report

        return Report(self)

    def over(self, file: str, kernel: str, count: int, *arguments: Any) -> None:
        """Launch a kernel over `count` elements, its first argument; ints are C's int, floats C's float."""
        if count:
            blocks = min(BLOCKS, -(-count // THREADS))
            self.launch(file, kernel, (blocks,), np.int64(count), *arguments)

    def launch(self, file: str, kernel: str, blocks: tuple[int, ...], *arguments: Any) -> None:
        """Launch a kernel with so many blocks, arguments as they are but for Python's numbers."""
        module = self._modules.get(file)
        if module is None:
            module = self._modules[file] = self.gpu.xp.RawModule(code=source(file), options=FLAGS)
        module.get_function(kernel)(blocks, (THREADS,), tuple(map(_typed, arguments)))

    def __str__(self) -> str:
        return f"cuda, on {self.gpu}, in {self.compute}"


def _typed(value: Any) -> Any:
    """Return a number with the type that a kernel expects of it."""
    if isinstance(value, int):
        return np.int32(value)
    return np.float32(value) if type(value) is float else value


def divisor(number: int) -> np.uint64:
    """Return a divisor as common.cu's Divisor takes it: by what to multiply, and in the upper half how far to shift."""
    shift = (number - 1).bit_length()
    return np.uint64((((1 << shift) - number << 32) // number + 1) | shift << 32)
