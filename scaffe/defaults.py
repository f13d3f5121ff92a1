"""Defaults: what this process's nets and solvers take where they are given no other.

A program sets them once, in place of an argument of each call. pycaffe's set_mode_gpu, set_device and set_random_seed
set them too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from scaffe.compute import Compute
from scaffe.devices.gpu import Gpu, choose
from scaffe.errors import ScaffeError
from scaffe.near import near
from scaffe.setting import check_record

SEEDS = 1 << 63  # a solver state keeps a seed as int64


@dataclass(frozen=True)
class Defaults:
    """What nets and solvers take where they are given no other.

    - `compute`: how they compute. With device "cuda" they compute on a GPU of this process.
    - `gpu`: the number of that GPU; None for the nearest that no other rank has taken.
    - `seed`: of fillers, dropout, shuffles and crops. None is 0 for a net, and for a solver a number that the root
      draws. A solver file's `random_seed` has precedence.
    """

    compute: Compute = Compute()
    gpu: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        check_record("compute", self.compute, Compute)
        for name, limit in (("gpu", 1 << 31), ("seed", SEEDS)):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and 0 <= value < limit):
                raise ScaffeError(f"{name} must be None or a whole number from 0 to {limit - 1}, got {value!r}")


_present = Defaults()
_gpus: dict[int | None, Gpu] = {}  # in use, by the number that was asked for


def get_defaults() -> Defaults:
    """Return the present defaults."""
    return _present


def set_defaults(**fields: Any) -> Defaults:
    """Replace fields of the defaults, for nets and solvers made from now on; return the defaults before.

    On several ranks each has its own: all should set the same. Raise ScaffeError for an unknown or wrong value.
    """
    global _present
    if unknown := fields.keys() - vars(_present).keys():
        raise ScaffeError(f"unknown default '{min(unknown)}'{near(min(unknown), vars(_present), 'known')}")
    before, _present = _present, replace(_present, **fields)
    return before


def default_gpu() -> Gpu | None:
    """Return the GPU that the defaults ask for, chosen when it is first needed; None for the CPU.

    Raise LaunchError where there is no such GPU.
    """
    number = _present.gpu
    if _present.compute.device != "cuda":
        return None
    if number not in _gpus and (chosen := choose("cuda", None if number is None else str(number))):
        _gpus[number] = chosen
    return _gpus[number]


def wait() -> None:
    """Wait until the GPUs that nets and solvers took by the defaults have done their work."""
    for gpu in _gpus.values():
        gpu.wait()
