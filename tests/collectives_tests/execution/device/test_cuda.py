"""CuPy's device: what is asked of CuPy, of which all is made up here. tests/device_tests has a real GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collectives.errors import ArgumentError, DeviceFault
from collectives.execution.device import cuda
from collectives.execution.operations import OPERATIONS


class MadeUpError(RuntimeError):
    """CuPy's CUDARuntimeError."""


class Runtime:
    """cupy.cuda.runtime of a machine with some GPUs."""

    CUDARuntimeError = MadeUpError
    memcpyDefault = 4

    def __init__(self, count: int = 2):
        self.count, self.copies, self.status, self.number = count, [], 0, 0

    def getDeviceCount(self) -> int:
        return self.count

    def setDevice(self, number: int) -> None:
        self.number = number

    def getDeviceProperties(self, number: int) -> dict[str, bytes]:
        return {"uuid": bytes([number])}

    def deviceGetPCIBusId(self, number: int) -> str:
        return f"bus {number}"

    def eventQuery(self, pointer: int) -> int:
        return self.status

    def memcpyAsync(self, *given: int) -> None:
        self.copies.append(given)


class Stream:
    """A stream, and what is entered."""

    ptr = 5

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def cupy(runtime: Runtime) -> Any:
    """Return a module of CuPy's names, which notes launches."""
    launched: list[tuple[str, tuple[int], tuple[int], tuple[Any, ...]]] = []

    def module(code: str, options: tuple[str, ...]) -> Any:
        return SimpleNamespace(get_function=lambda name: lambda *given: launched.append((name, *given)))

    event = SimpleNamespace(ptr=1, record=None, synchronize=None)
    device = SimpleNamespace(id=runtime.number)
    made = SimpleNamespace(runtime=runtime, Device=lambda: device, Event=lambda block, disable_timing: event)
    return SimpleNamespace(cuda=made, RawModule=module, launched=launched, event=event, ndarray=SimpleNamespace)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy, in its place."""
    made = cupy(Runtime())
    monkeypatch.setitem(sys.modules, "cupy", made)
    cuda.find.cache_clear()
    yield made
    cuda.find.cache_clear()


def test_ranks_take_gpus_in_turn(found: Any) -> None:
    for rank in (1, 2, 3):
        cuda.take(rank)
        assert found.cuda.runtime.number == rank % 2


def test_without_gpus_one_is_told_so(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda.find().name == "GPU 0" and cuda.find().identity == "bus 0 00"
    cuda.find.cache_clear()
    found.cuda.runtime.count = 0
    with pytest.raises(ArgumentError, match="device arrays need a GPU, CuPy finds none"):
        cuda.find()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ArgumentError, match=r"need CuPy, which can't be imported: pip install 'scaffe\[cuda\]'"):
        cuda.find()


def test_a_device_error_is_no_completion(found: Any) -> None:
    event = cuda.find().event()
    for status, done in ((cuda.DONE, True), (cuda.NOT_READY, False)):
        found.cuda.runtime.status = status
        assert event.Test() is done
    found.cuda.runtime.status = 719

    def synchronize() -> None:
        raise MadeUpError("cudaErrorLaunchFailure")

    found.event.synchronize = synchronize
    for wait in (event.Test, event.Wait):
        with pytest.raises(DeviceFault, match="719|cudaErrorLaunchFailure"):
            wait()


def test_kernels_have_enough_threads_and_no_elements_no_kernel(found: Any) -> None:
    device, stream = cuda.find(), Stream()
    for count, blocks in ((1, 1), (256, 1), (257, 2), (1 << 20, cuda.BLOCKS), (0, None)):
        array = np.zeros(count, np.float32)
        device.join(OPERATIONS["mean"], array, array, array, stream)  # type: ignore[arg-type]
        device.divide(array, 3, stream)  # type: ignore[arg-type]
        if blocks is not None:
            assert [call[:3] for call in found.launched[-2:]] == [
                ("sum_float32", (blocks,), (cuda.THREADS,)), ("divide_float32", (blocks,), (cuda.THREADS,)),
            ]  # fmt: skip
            assert found.launched[-2][3][3] == count and found.launched[-1][3][1:] == (count, 3)
    assert len(found.launched) == 8
    pointers = np.zeros(2, np.uint64)
    for name, divisor in (("max", 1), ("mean", 2)):
        device.join_all(OPERATIONS[name], pointers, pointers, slice(3, 7), np.dtype("f8"), stream)  # type: ignore[arg-type]
        kernel, _, _, (_, to, _, from_, start, stop, by) = found.launched[-1]
        assert kernel == ("all_max_float64" if name == "max" else "all_sum_float64")
        assert (to, from_, start, stop, by) == (2, 2, 3, 7, divisor)


def test_copies_are_of_bytes_and_none_of_nothing(found: Any) -> None:
    device, one, other = cuda.find(), np.zeros(3, np.float32), np.ones(3, np.float32)
    device.copy(one, other, Stream())  # type: ignore[arg-type]
    device.copy_from(one, 99, Stream())  # type: ignore[arg-type]
    device.copy(one[:0], other[:0], Stream())  # type: ignore[arg-type]
    where = one.ctypes.data
    assert found.cuda.runtime.copies == [(where, other.ctypes.data, 12, 4, 5), (where, 99, 12, 4, 5)]
