"""The fields of a solver file, checked."""

from __future__ import annotations

import os
from collections.abc import Iterator

from scaffe.defaults import get_defaults
from scaffe.errors import ScaffeError
from scaffe.layers.average_precision import VERSIONS
from scaffe.monitor.log import log
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter, numbers, strings
from scaffe.proto.files import read_solver
from scaffe.solvers import lr_policy

_LEAST = {"iter_size": 1, "average_loss": 1, "snapshot": 0, "max_iter": 0}


def checked(given: str | os.PathLike[str] | SolverParameter) -> SolverParameter:
    """Return the fields of a file, or those given. Raise ScaffeError where one has a wrong value."""
    param = given if isinstance(given, SolverParameter) else read_solver(given)
    numbers.check(param)
    strings.check(param)
    lr_policy.check(param)
    for field, least in _LEAST.items():
        if getattr(param, field) < least:
            raise ScaffeError(f"{field} must be {least} or more, got {getattr(param, field)}")
    if not 0 <= param.momentum < 1:
        raise ScaffeError(f"momentum must be 0 or more and below 1, got {param.momentum:g}")
    for field, known in (("eval_type", ("classification", "detection")), ("ap_version", (*VERSIONS,))):
        if getattr(param, field) not in known:
            raise ScaffeError(f"{field} must be {' or '.join(known)}, got '{getattr(param, field)}'")
    if any(number < 1 for number in param.test_iter):
        raise ScaffeError(f"test_iter must be 1 or more, got {' '.join(map(str, param.test_iter))}")
    return param


def doubts(param: SolverParameter) -> Iterator[str]:
    """Yield what Caffe accepts too, but nobody wants."""
    if not param.HasField("base_lr"):
        yield "base_lr is missing: the learning rate is 0, and nothing is learned"
    yield from lr_policy.doubts(param)
    for field in ("base_lr", "weight_decay"):
        if getattr(param, field) < 0:
            yield f"{field} is below 0, {getattr(param, field):g}: the loss grows"
    if param.test_interval > 0 and not param.test_iter:
        yield "test_interval without test_iter: nothing is tested"


def chosen_seed(world: World, param: SolverParameter) -> int:
    """Return the solver file's seed, else the root's default seed, or one drawn by the root. Collective."""
    if param.random_seed >= 0:
        return param.random_seed
    default = world.bcast(get_defaults().seed)
    if default is not None:
        return default
    seed = world.bcast(int.from_bytes(os.urandom(4), "big") >> 1)
    log.info("Random seed %d: drawn, since the solver sets none; random_seed: %d repeats this run", seed, seed)
    return seed
