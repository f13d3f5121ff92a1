"""Caffe's learning rate policies and a warm-up: the rate at an iteration, as functions of the solver's fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import exp, inf, isfinite

from scaffe.errors import DivergedError, ScaffeError
from scaffe.near import near
from scaffe.proto import SolverParameter


def fixed(p: SolverParameter, iteration: int) -> float:
    """Return base_lr."""
    return p.base_lr


def step(p: SolverParameter, iteration: int) -> float:
    """Return base_lr * gamma ^ floor(iteration / stepsize)."""
    return p.base_lr * p.gamma ** current_step(p, iteration)


def exponential(p: SolverParameter, iteration: int) -> float:
    """Return base_lr * gamma ^ iteration."""
    return p.base_lr * p.gamma**iteration


def inverse(p: SolverParameter, iteration: int) -> float:
    """Return base_lr * (1 + gamma * iteration) ^ -power."""
    found: float = p.base_lr * (1 + p.gamma * iteration) ** -p.power
    return found


def multistep(p: SolverParameter, iteration: int) -> float:
    """Return base_lr * gamma ^ (number of stepvalues reached)."""
    return p.base_lr * p.gamma ** current_step(p, iteration)


def polynomial(p: SolverParameter, iteration: int) -> float:
    """Return base_lr * (1 - iteration / max_iter) ^ power, 0 from max_iter on."""
    found: float = p.base_lr * max(0.0, 1 - iteration / p.max_iter) ** p.power
    return found


def sigmoid(p: SolverParameter, iteration: int) -> float:
    """Return base_lr / (1 + exp(-gamma * (iteration - stepsize)))."""
    return p.base_lr / (1 + exp(min(700.0, -p.gamma * (iteration - p.stepsize))))


def current_step(p: SolverParameter, iteration: int) -> int:
    """Return the number of steps done by a "step" or "multistep" policy, which a solver state stores."""
    if p.lr_policy == "step":
        return iteration // p.stepsize
    if p.lr_policy == "multistep":
        return sum(iteration >= value for value in p.stepvalue)
    return 0


_policies: dict[str, Callable[[SolverParameter, int], float]] = {
    "fixed": fixed,
    "step": step,
    "exp": exponential,
    "inv": inverse,
    "multistep": multistep,
    "poly": polynomial,
    "sigmoid": sigmoid,
}


# Fields without which a policy computes what nobody wants; `check` refuses a solver without others.
_USED = {
    "step": ("gamma",),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "multistep": ("gamma", "stepvalue"),
    "poly": ("power",),
    "sigmoid": ("gamma", "stepsize"),
}


def doubts(p: SolverParameter) -> Iterator[str]:
    """Yield a line for each field that the policy uses and that is missing."""
    given = {field.name for field, _ in p.ListFields()}
    for name in _USED.get(p.lr_policy, ()):
        if name not in given:
            effect = "the rate stays" if name == "stepvalue" else "it is 0"
            yield f"lr_policy '{p.lr_policy}' takes {name}, which is missing: {effect}"


def check(p: SolverParameter) -> None:
    """Raise ScaffeError for an unknown policy, or a value that the policy cannot use."""
    if not p.lr_policy:
        raise ScaffeError(f"lr_policy is missing; known policies: {' '.join(_policies)}")
    if p.lr_policy not in _policies:
        raise ScaffeError(f"lr_policy '{p.lr_policy}' is unknown{near(p.lr_policy, _policies, 'known policies')}")
    if p.lr_policy == "step" and p.stepsize <= 0:
        raise ScaffeError(f"lr_policy 'step' needs a stepsize above 0, got {p.stepsize}")
    if p.lr_policy == "poly" and p.max_iter <= 0:
        raise ScaffeError(f"lr_policy 'poly' needs a max_iter above 0, got {p.max_iter}")
    if p.lr_policy == "sigmoid" and p.gamma < 0:
        raise ScaffeError(f"lr_policy 'sigmoid' needs a gamma of 0 or more, got {p.gamma:g}")
    if list(p.stepvalue) != sorted(p.stepvalue):
        raise ScaffeError(f"stepvalue must rise, got {' '.join(map(str, p.stepvalue))}")
    for field in ("warmup_iter", "warmup_start_lr"):
        if getattr(p, field) < 0:
            raise ScaffeError(f"{field} must be 0 or more, got {getattr(p, field):g}")


def rate(p: SolverParameter, iteration: int) -> float:
    """Return the learning rate of `iteration`, before a parameter's lr_mult.

    Raise DivergedError, on all ranks, if it is not finite.
    """
    try:
        found = warmed_up(p, iteration, _policies[p.lr_policy](p, iteration))
    except (OverflowError, ZeroDivisionError):
        found = inf
    if isinstance(found, complex) or not isfinite(found):
        raise DivergedError(
            f"lr_policy '{p.lr_policy}': the learning rate of iteration {iteration} is not a finite number; "
            f"check gamma ({p.gamma:g}) and power ({p.power:g})"
        )
    return found


def warmed_up(p: SolverParameter, iteration: int, target: float) -> float:
    """Return the rate of a linear warm-up from warmup_start_lr to the policy's rate, `target`.

    The warm-up takes warmup_iter iterations, 0 for none. Goyal et al. 2017, section 2.2, the gradual warm-up.
    """
    if iteration >= p.warmup_iter:
        return target
    return p.warmup_start_lr + (target - p.warmup_start_lr) * iteration / p.warmup_iter
