"""A stand-in for a GPU that has the stand-in for cuDNN."""

from functools import partial
from types import SimpleNamespace

import fake_cudnn
from fake_cudnn import Engine, FakeEvent, FakeFrontend
from strict_arrays import StrictGpu, xp

from scaffe.devices.gpu import Gpu
from scaffe.engines.cuda.cudnn import Cudnn


def gpu_with(frontend=None):
    """Return a stand-in for a GPU with that stand-in for cuDNN, else with one that has one plan."""
    frontend = frontend or FakeFrontend(Engine("eng0"))
    gpu = StrictGpu()
    gpu.libraries["cudnn"] = Cudnn(frontend, frontend.handle)
    gpu.explain = partial(Gpu.explain, gpu)
    event = type("Event", (FakeEvent,), {"frontend": frontend})
    more = {"Event": event, "get_elapsed_time": fake_cudnn.elapsed_time}
    gpu.xp = SimpleNamespace(**vars(xp) | {"cuda": SimpleNamespace(**vars(xp.cuda) | more)})
    return gpu
