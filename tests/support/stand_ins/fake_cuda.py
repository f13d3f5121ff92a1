"""cupy.cuda, as far as it is asked which GPUs there are: their count, names and errors are made up."""

from recorded import HERE


class CudaError(Exception):
    """What cupy raises for the driver's errors."""


class Runtime:
    """cupy.cuda.runtime on a machine with two GPUs, or with none."""

    def __init__(self, count):
        self.count = count

    def getDeviceCount(self):
        if not self.count:
            raise CudaError("cudaErrorNoDevice: no CUDA-capable\ndevice is detected")
        return self.count

    def getDeviceProperties(self, i):
        return {"name": b"GH%d" % i, "totalGlobalMem": (i + 1) * 2**34, "major": 9, "minor": i}

    def deviceGetPCIBusId(self, i):
        return f"0000:0{i}:00.0"

    def deviceCanAccessPeer(self, i, j):
        return {i, j} != {0, 2}

    def driverGetVersion(self):
        return 12080

    def runtimeGetVersion(self):
        return 13010

    def free(self, pointer):
        pass


class FakeDevice:
    """cupy.cuda.Device: takes note of which was put to use."""

    used: list[int] = []

    def __init__(self, number):
        self.number = number

    def use(self):
        self.used.append(self.number)
        HERE.device = self.number


class CUDARuntimeError(RuntimeError):
    """cupy.cuda.runtime.CUDARuntimeError."""
