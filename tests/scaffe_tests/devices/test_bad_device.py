"""What a GPU's errors are told as, with errors that are made as CuPy makes them; no GPU is needed."""

from types import SimpleNamespace

import numpy as np
import pytest
from fake_cuda import CUDARuntimeError
from strict_arrays import StrictGpu

import scaffe
from collectives import DeviceFault
from collectives.execution.device.cuda import CudaEvent
from scaffe import engines
from scaffe.devices.gpu import Gpu
from scaffe.errors import DeviceError

NET = """
force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "p" type: "Power" bottom: "x" top: "y" power_param { scale: 2 } }
"""


class OutOfMemoryError(MemoryError):
    """cupy.cuda.memory.OutOfMemoryError."""


class CompileException(Exception):  # noqa: N818  CuPy's name
    """cupy.cuda.compiler.CompileException."""


class FailingGpu(StrictGpu):
    """A stand-in that tells errors as a Gpu does."""

    explain = Gpu.explain
    free = 100


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    return scaffe.Net(tmp_path / "net.prototxt", scaffe.TRAIN, engine=engines.create(gpu=FailingGpu()))


def failing(error):
    def work(*arguments):
        raise error

    return work


@pytest.mark.parametrize("step", ["forward", "backward"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OutOfMemoryError("Out of memory allocating 1,073,741,824 bytes (allocated so far: 512 bytes)."),
            r"^layer 'p' \(Power\), .*: out of memory of GPU 0: 1073741824 bytes wanted, 100 are free",
        ),
        (
            CUDARuntimeError("cudaErrorIllegalAddress: an illegal\nmemory access"),
            "illegal memory access; look at .* Xid",
        ),
        (CompileException("kernel.cu(3): error"), "does not compile for GPU 0, .*kernel.cu"),
        (ImportError("libcublas.so.12: no such file"), "a CUDA library is missing: libcublas.so.12"),
    ],
)
def test_what_goes_wrong_on_a_gpu_names_the_layer_and_what_to_do(net, monkeypatch, step, error, said):
    monkeypatch.setattr(net.layer_dict["p"], step, failing(error))
    with pytest.raises(DeviceError, match=said):
        net.forward(x=np.ones((2, 3)))
        net.backward()


def test_without_room_the_batch_that_would_fit_is_told(net, monkeypatch):
    net.context.local_rows = 2  # as a data layer would say
    monkeypatch.setattr(net.layer_dict["p"], "forward", failing(OutOfMemoryError("allocating 48 bytes")))
    with pytest.raises(DeviceError, match="a batch of about 1 a rank would fit instead of 2"):
        net.forward(x=np.ones((2, 3)))


def test_other_errors_stay_what_they_are(net, monkeypatch):
    monkeypatch.setattr(net.layer_dict["p"], "forward", failing(RuntimeError("a defect")))
    with pytest.raises(RuntimeError, match="a defect"):
        net.forward()


class Runtime:
    """cupy.cuda.runtime: eventQuery gives the driver's status, whatever it is."""

    def __init__(self):
        self.status = 600

    def eventQuery(self, pointer):  # noqa: N802  CuPy's name
        assert pointer == 4711
        return self.status

    @staticmethod
    def CUDARuntimeError(status):  # noqa: N802
        return RuntimeError(f"cudaErrorIllegalAddress: an illegal memory access was encountered ({status})")


def test_an_event_of_a_device_that_failed_is_an_error_not_an_endless_wait():
    runtime = Runtime()

    class Event:
        ptr = 4711

        def __init__(self, block, disable_timing):
            pass

        @property
        def done(self):  # as CuPy's
            return runtime.eventQuery(self.ptr) == 0

    event = CudaEvent(SimpleNamespace(cuda=SimpleNamespace(Event=Event, runtime=runtime)))
    assert not event.Test()
    runtime.status = 0
    assert event.Test()
    runtime.status = 700
    with pytest.raises(DeviceFault, match="illegal memory access was encountered"):
        event.Test()


def test_a_fault_under_a_message_says_what_to_do(net):
    fault = DeviceFault("cudaErrorIllegalAddress: an illegal memory access").located("gradients of conv1 to conv5")
    text = net.engine.explain(fault)
    assert "failed: gradients of conv1 to conv5: cudaErrorIllegalAddress" in text and "--snapshot auto" in text
