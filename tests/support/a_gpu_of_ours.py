"""The GPU of this rank, for all tests that need one: GPU as scaffe sees it, DEVICE as collectives do, or MISSING."""

from collectives import ArgumentError
from collectives.execution.device import cuda
from scaffe.devices import gpu
from scaffe.errors import LaunchError

GPU, DEVICE, MISSING = None, None, ""
try:
    GPU = gpu.choose("cuda")
    DEVICE = cuda.find()
except (LaunchError, ArgumentError) as error:
    MISSING = str(error)
