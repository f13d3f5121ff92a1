"""The device of CuPy: an NVIDIA GPU. tests/device_tests holds what must run on one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np

from collectives.errors import ArgumentError, DeviceFault
from collectives.execution.device import codec_kernels, kernels, nccl
from collectives.execution.operations import Operation
from collectives.execution.peer import address

DONE, NOT_READY = 0, 600  # an event's status: cudaSuccess, cudaErrorNotReady
THREADS, BLOCKS = 256, 1024  # per kernel, at most: enough to fill a GPU; each thread then takes several elements


@cache
def find() -> CudaDevice:
    """Return the current GPU. Raise ArgumentError, with what is missing, where there is none."""
    try:
        import cupy
    except ImportError as error:
        hint = "pip install 'scaffe[cuda]'" if isinstance(error, ModuleNotFoundError) else str(error).splitlines()[0]
        raise ArgumentError(f"device arrays need CuPy, which can't be imported: {hint}") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ArgumentError(f"device arrays need a GPU, CuPy finds none: {error}") from None
    if not count:
        raise ArgumentError("device arrays need a GPU, CuPy finds none")
    return CudaDevice(cupy)


def take(rank: int) -> None:
    """Make the GPU with the number of this rank on its node current, counting round where there are fewer GPUs.

    Raise ArgumentError where there is none.
    """
    device = find()
    count = device.runtime.getDeviceCount()
    device.runtime.setDevice(rank % count)
    find.cache_clear()


class CudaEvent:
    """CuPy's event as a request."""

    def __init__(self, cupy: Any, patient: bool = False):
        """Make an event; waiting for a `patient` one leaves the core to other threads."""
        self.event, self._runtime = cupy.cuda.Event(block=patient, disable_timing=True), cupy.cuda.runtime

    def record(self, stream: Any) -> None:
        """Record the event on a stream."""
        self.event.record(stream.stream)

    def Test(self) -> bool:
        """Return whether the event is complete. Raise DeviceFault after a device error, which CuPy's `done` hides."""
        status = self._runtime.eventQuery(self.event.ptr)
        if status not in (DONE, NOT_READY):
            raise DeviceFault(str(self._runtime.CUDARuntimeError(status)))
        return bool(status == DONE)

    def Wait(self) -> None:
        """Wait for the event. Raise DeviceFault after a device error."""
        try:
            self.event.synchronize()
        except self._runtime.CUDARuntimeError as error:
            raise DeviceFault(str(error)) from None


class CudaStream:
    """CuPy's stream."""

    def __init__(self, stream: Any):
        self.stream, self.ptr = stream, stream.ptr

    def wait_event(self, event: CudaEvent) -> None:
        """Make the stream wait for an event."""
        self.stream.wait_event(event.event)

    def __enter__(self) -> None:
        self.stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.stream.__exit__(*error)


class CudaDevice:
    """The GPU that is CuPy's current one when the first device array is used. All arrays must lie on it."""

    def __init__(self, cupy: Any):
        self._cupy, self.runtime = cupy, cupy.cuda.runtime
        self.number = cupy.cuda.Device().id
        self.name = f"GPU {self.number}"
        uuid = self.runtime.getDeviceProperties(self.number)["uuid"]  # each MIG instance has its own
        self.identity = f"{self.runtime.deviceGetPCIBusId(self.number)} {uuid.hex()}"
        self._module: Any = None
        self._functions: dict[str, Any] = {}

    def nccl(self) -> Any:
        """Return CuPy's NCCL."""
        return nccl.load()

    def holds(self, array: Any) -> bool:
        """Return whether `array` is a CuPy array on this GPU."""
        return isinstance(array, self._cupy.ndarray) and array.device.id == self.number

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, stream: CudaStream | None = None) -> Any:
        """Return an uninitialized array."""
        with stream.stream if stream is not None else nullcontext():  # CuPy's pool keeps free blocks for each stream
            return self._cupy.empty(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return an array of zeros."""
        return self._cupy.zeros(shape, dtype)

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return `nbytes` bytes of pinned host memory."""
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)

    def stream(self) -> CudaStream:
        """Return a new non-blocking stream."""
        return CudaStream(self._cupy.cuda.Stream(non_blocking=True))

    def current(self) -> CudaStream:
        """Return the calling thread's stream."""
        return CudaStream(self._cupy.cuda.get_current_stream())

    def event(self, patient: bool = False) -> CudaEvent:
        """Return a new event."""
        return CudaEvent(self._cupy, patient)

    def copy(self, target: Any, source: Any, stream: CudaStream) -> None:
        """Copy bytes between arrays."""
        self._copy(address(target), address(source), target.nbytes, stream)

    def copy_from(self, target: Any, pointer: int, stream: CudaStream) -> None:
        """Copy bytes from a device pointer."""
        self._copy(address(target), pointer, target.nbytes, stream)

    def copy_to(self, pointer: int, source: Any, stream: CudaStream) -> None:
        """Copy bytes to a device pointer."""
        self._copy(pointer, address(source), source.nbytes, stream)

    def join(self, op: Operation, target: Any, source: Any, arrived: Any, stream: CudaStream) -> None:
        """Launch the kernel that joins two arrays."""
        name = f"{kernel(op)}_{target.dtype}"
        self._launch(name, target.size, (target, source, arrived, np.uint64(target.size)), stream)

    def divide(self, values: Any, ranks: int, stream: CudaStream) -> None:
        """Launch the kernel that divides."""
        self._launch(f"divide_{values.dtype}", values.size, (values, np.uint64(values.size), np.int32(ranks)), stream)

    def join_all(
        self, op: Operation, targets: Any, sources: Any, part: slice, dtype: np.dtype, stream: CudaStream
    ) -> None:
        """Launch the kernel that joins all sources."""
        begin, end = np.uint64(part.start), np.uint64(part.stop)
        divisor = np.int32(sources.size if op.divided else 1)
        arguments = targets, np.int32(targets.size), sources, np.int32(sources.size), begin, end, divisor
        self._launch(f"all_{kernel(op)}_{dtype}", part.stop - part.start, arguments, stream)

    def encode(self, codec: str, values: Any, message: Any, lost: Any, spreads: bool, stream: CudaStream) -> None:
        """Launch a codec's kernel that encodes."""
        kept = np.uint64(0) if lost is None else lost
        arguments = values, message, kept, np.int32(spreads), np.uint64(values.size)
        self._launch(f"encode_{codec}", codec_kernels.threads(codec, values.size), arguments, stream)

    def decode(self, codec: str, message: Any, values: Any, stream: CudaStream) -> None:
        """Launch a codec's kernel that decodes."""
        self._launch(f"decode_{codec}", values.size, (values, message, np.uint64(values.size)), stream)

    def decode_join(
        self, op: Operation, codec: str, target: Any, source: Any, message: Any, stream: CudaStream
    ) -> None:
        """Launch a codec's kernel that decodes and joins."""
        arguments = target, source, message, np.uint64(target.size)
        self._launch(f"decode_{kernel(op)}_{codec}", target.size, arguments, stream)

    def table(self, pointers: Sequence[int], stream: CudaStream) -> Any:
        """Return device pointers as an array on the device."""
        with stream:
            return self._cupy.asarray(np.array(pointers, np.uint64))

    def export(self, array: Any) -> tuple[bytes, int]:
        """Return a CUDA IPC handle and the array's offset in its allocation."""
        base = self._base(address(array))
        try:
            return bytes(self.runtime.ipcGetMemHandle(base)), address(array) - base
        except self.runtime.CUDARuntimeError as error:
            raise ArgumentError(f"this memory can't be shared between processes: {error}") from None

    def open(self, handle: bytes) -> int:
        """Return a pointer to the memory of an IPC handle."""
        try:
            return int(self.runtime.ipcOpenMemHandle(handle))
        except self.runtime.CUDARuntimeError as error:
            raise ArgumentError(f"no access to another process's device memory: {error}") from None

    def close(self, pointer: int) -> None:
        """Unmap the memory of an IPC handle."""
        self.runtime.ipcCloseMemHandle(pointer)

    def _base(self, pointer: int) -> int:
        """Return the start of the allocation that `pointer` is in: handles are of whole allocations."""
        base, nbytes = ctypes.c_void_p(), ctypes.c_size_t()
        code = _driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(nbytes), ctypes.c_uint64(pointer))
        if code or not base.value:
            raise ArgumentError(f"the driver knows no allocation at {pointer:#x} (error {code})")
        return base.value

    def _copy(self, target: int, source: int, nbytes: int, stream: CudaStream) -> None:
        """Start a copy, of any direction."""
        if nbytes:
            self.runtime.memcpyAsync(target, source, nbytes, self.runtime.memcpyDefault, stream.ptr)

    def _launch(self, name: str, count: int, arguments: tuple[Any, ...], stream: CudaStream) -> None:
        """Launch kernel `name` over `count` elements; compile the kernels at the first launch."""
        if not count:
            return
        if name not in self._functions:
            if self._module is None:
                self._module = self._cupy.RawModule(code=kernels.source(), options=kernels.FLAGS)
            self._functions[name] = self._module.get_function(name)
        blocks = min(BLOCKS, -(-count // THREADS))
        with stream:
            self._functions[name]((blocks,), (THREADS,), arguments)


@cache
def _driver() -> ctypes.CDLL:
    """Return the driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def kernel(op: Operation) -> str:
    """Return the name of an operation's kernels: a mean is a sum until it is divided."""
    return "sum" if op.divided else op.name
