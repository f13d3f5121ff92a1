"""pycaffe's process-wide choices: the mode, the device and the seed of nets and solvers made afterwards."""

from __future__ import annotations

import logging
import operator
from dataclasses import replace

from scaffe.defaults import get_defaults, set_defaults
from scaffe.devices import gpu
from scaffe.errors import LaunchError
from scaffe.monitor.log import log
from scaffe.pycaffe import logs


def set_mode_cpu() -> None:
    """Compute on the CPU: nets and solvers made from now on, unless they are given a Compute."""
    set_defaults(compute=replace(get_defaults().compute, device="cpu"))


def set_mode_gpu() -> None:
    """Compute on a GPU: nets and solvers made from now on, unless they are given a Compute.

    Without a GPU that can be used, log a warning, and compute on the CPU.
    """
    try:
        gpu.find()
    except LaunchError as error:
        logs.begin()
        level = logging.INFO if gpu.local_rank() else logging.WARNING
        log.log(level, "set_mode_gpu: layers compute on the CPU, since no GPU can be used: %s", error)
        set_mode_cpu()
        return
    set_defaults(compute=replace(get_defaults().compute, device="cuda"))


def set_device(device_id: int) -> None:
    """Compute on the GPU of this number, in the mode of set_mode_gpu; without a call each rank takes the nearest one.

    Raise ScaffeError for a number below 0. LaunchError, if there are fewer GPUs, comes with the first net or solver.
    """
    set_defaults(gpu=operator.index(device_id))


def set_random_seed(seed: int) -> None:
    """Set the seed of fillers, dropout, crops and shuffles of nets and solvers made from now on.

    A solver file's random_seed has precedence. On several ranks the root's counts for solvers. Numbers depend on the
    seed and the layer's name: two nets made after one call have the same parameters. Raise ScaffeError for a seed below
    0.
    """
    set_defaults(seed=operator.index(seed))
