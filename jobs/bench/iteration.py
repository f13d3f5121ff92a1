"""Iterations of scaffe and of PyTorch over the same net, for engine.py and memory.py, on constant random images.

One of training updates by SGD with momentum and weight decay; one of inference is a forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import scaffe
from scaffe import models, solvers
from scaffe.compute import Compute
from scaffe.devices.choices import FIXED
from scaffe.proto import NetParameter, SolverParameter

RATE, MOMENTUM, DECAY = 1e-6, 0.9, 5e-4


def zoo(name: str, batch: int) -> NetParameter:
    """Return the training net of the model zoo, over an Input layer."""
    return models.get(name).train_val(batch=batch, data="input")


def build(
    param: NetParameter, engine: str, plan: str = FIXED, numbers: str = "float32", phase: int = scaffe.TRAIN
) -> scaffe.Net:
    """Return the net over random images of class 0."""
    net = scaffe.Net(param, phase, compute=Compute(engine, plan=plan, numbers=numbers))
    random_images(net, 0)
    return net


def normalise(net: scaffe.Net, param: NetParameter) -> None:
    """Give a net of inference the parameters and statistics of a training pass, if it has a BatchNorm."""
    if not net.trains and any(layer.type == "BatchNorm" for layer in net.layers):
        training = build(param, net.engine.name)
        training.forward()
        net.share_with(training)


def ours(net: scaffe.Net) -> Callable[[], None]:
    """Return one iteration of scaffe."""
    apply = update(net)
    net.keep_diffs = False

    def iteration() -> None:
        net.clear_param_diffs()
        net.forward()
        net.backward()
        apply()

    return iteration


def solver_fields(kind: str = "SGD") -> dict[str, Any]:
    """Return the fields of a solver of this type; RMSProp has no momentum."""
    momentum = 0.0 if kind == "RMSProp" else MOMENTUM
    return {"type": kind, "base_lr": RATE, "momentum": momentum, "weight_decay": DECAY, "lr_policy": "fixed"}


def solver_param(net: NetParameter, kind: str = "SGD", **more: Any) -> SolverParameter:
    """Return the solver of a net, which writes no snapshot at its end; `more` are further fields."""
    own = {"random_seed": 1, "max_iter": 1, "snapshot_after_train": False}
    return SolverParameter(net_param=net, **solver_fields(kind) | own | more)


def random_images(net: scaffe.Net, seed: int) -> None:
    """Fill a net's batch with random images of class 0."""
    net.blobs["data"].data[...] = np.random.default_rng(seed).standard_normal(net.blobs["data"].shape)


def update(net: scaffe.Net, kind: str = "SGD") -> Callable[[], None]:
    """Return one update of all parameters, by a solver's type."""
    rule = solvers.create(SolverParameter(**solver_fields(kind)), net.packed, net.engine)
    parameters = range(len(net.packed.parameters))
    return lambda: rule.update(parameters, RATE, 0)


def forward(net: scaffe.Net) -> Callable[[], None]:
    """Return one forward pass of scaffe, which keeps no blobs, as `scaffe test` runs it."""
    net.keep_data = False
    every = tuple(range(len(net.layers)))

    def iteration() -> None:
        net.engine.forward(net, every)

    return iteration


def theirs(model: Any, x: Any, y: Any, channels_last: bool, numbers: str = "float32") -> Callable[[], None]:
    """Return one iteration of PyTorch on a TorchNet and its batch, in a memory format; "bf16" is under autocast."""
    from torch_net import training

    return training(model, x, y, channels_last, numbers, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)


def theirs_forward(model: Any, x: Any, y: Any, channels_last: bool, numbers: str = "float32") -> Callable[[], None]:
    """Return one forward pass of PyTorch, likewise, under inference_mode."""
    from torch_net import inference

    return inference(model, x, y, channels_last, numbers)
