"""Training iterations of scaffe and of PyTorch over the same net, for engine.py and memory.py.

Both update by SGD with momentum and weight decay, on constant random images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import scaffe
from scaffe import models, solvers
from scaffe.choices import FIXED
from scaffe.compute import Compute
from scaffe.proto import NetParameter, SolverParameter

RATE, MOMENTUM, DECAY = 1e-6, 0.9, 5e-4


def zoo(name: str, batch: int) -> NetParameter:
    """Return the training net of the model zoo, over an Input layer."""
    return models.get(name).train_val(batch=batch, data="input")


def build(param: NetParameter, engine: str, plan: str = FIXED) -> scaffe.Net:
    """Return the net over random images of class 0."""
    net = scaffe.Net(param, scaffe.TRAIN, compute=Compute(engine, plan=plan))
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal(net.blobs["data"].shape)
    return net


def ours(net: scaffe.Net) -> Callable[[], None]:
    """Return one iteration of scaffe."""
    fields = {"base_lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    rule = solvers.create(SolverParameter(type="SGD", lr_policy="fixed", **fields), net.packed, net.engine)
    parameters = range(len(net.packed.parameters))
    net.keep_diffs = False

    def iteration() -> None:
        net.clear_param_diffs()
        net.forward()
        net.backward()
        rule.update(parameters, RATE, 0)

    return iteration


def theirs(model: Any, x: Any, y: Any, channels_last: bool) -> Callable[[], None]:
    """Return one iteration of PyTorch on a TorchNet and its batch, in a memory format."""
    from torch_net import training

    return training(model, x, y, channels_last, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
