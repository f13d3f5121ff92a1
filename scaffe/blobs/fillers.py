"""Fillers: initial values of parameters, with Caffe's names."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt
from typing import Any

import numpy as np

from scaffe.errors import NetError
from scaffe.near import near
from scaffe.proto import FillerParameter


def fill(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    """Fill `values` (float32, any shape) in place.

    Raise NetError, which names `where`, for an unknown type, a field out of range, or a wrong shape.
    """
    if filler.type not in _fillers:
        raise NetError(f"{where}: unknown filler '{filler.type}'{near(filler.type, sorted(_fillers), 'known fillers')}")
    _check(filler, where)
    _fillers[filler.type](values, filler, rng, where)


def _check(filler: FillerParameter, where: str) -> None:
    """Raise NetError if a field is out of Caffe's range."""
    if filler.type == "uniform" and not filler.min <= filler.max:
        raise NetError(f"{where}: filler 'uniform' has min {filler.min:g} above max {filler.max:g}")
    if filler.type == "gaussian" and not filler.std >= 0:
        raise NetError(f"{where}: filler 'gaussian' has std {filler.std:g}; give 0 or more")
    if filler.sparse != -1 and (filler.type != "gaussian" or filler.sparse < -1):
        raise NetError(f"{where}: filler '{filler.type}' has sparse {filler.sparse}; 'gaussian' alone takes it, from 0")


def given_or_constant(param: Any, value: float, field: str = "filler") -> FillerParameter:
    """Return the filler in a field of a layer's parameters, or if it is not set, a constant filler with `value`."""
    return getattr(param, field) if param.HasField(field) else FillerParameter(type="constant", value=value)


def _constant(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    values[...] = filler.value


def _uniform(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    _draw_uniform(values, rng, filler.min, filler.max)


def _gaussian(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    _draw_gaussian(values, rng, filler.mean, filler.std)
    if filler.sparse >= 0:
        outputs = _length(values, 0, filler, where)
        values *= rng.random(values.shape, np.float32) < filler.sparse / outputs


def _xavier(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    """Draw from [-sqrt(3 / fan), sqrt(3 / fan)); Glorot and Bengio 2010, equation 16, for the fan AVERAGE."""
    bound = sqrt(3 / _fan(values, filler, where))
    _draw_uniform(values, rng, -bound, bound)


def _msra(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    """Draw with standard deviation sqrt(2 / fan); He et al. 2015, equation 10."""
    _draw_gaussian(values, rng, 0, sqrt(2 / _fan(values, filler, where)))


def _positive_unitball(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    """Draw from [0, 1), then scale each row (axis 0) to the sum 1."""
    _length(values, 0, filler, where)
    _draw_uniform(values, rng, 0, 1)
    rows = values.reshape(len(values), -1)
    rows /= rows.sum(axis=1, keepdims=True)


def _bilinear(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    """Set the bilinear interpolation weights of a square kernel, for a Deconvolution that enlarges its bottom."""
    if values.ndim != 4 or values.shape[2] != values.shape[3]:
        raise NetError(f"{where}: filler 'bilinear' needs 4 axes with a square kernel, got shape {values.shape}")
    width = values.shape[3]
    half = ceil(width / 2)
    centre = (width - 1) / (2 * half)
    side = 1 - np.abs(np.arange(width) / half - centre)
    values[...] = np.outer(side, side)


def _draw_uniform(values: np.ndarray, rng: np.random.Generator, low: float, high: float) -> None:
    rng.random(out=values, dtype=np.float32)
    values *= high - low
    values += low


def _draw_gaussian(values: np.ndarray, rng: np.random.Generator, mean: float, std: float) -> None:
    rng.standard_normal(out=values, dtype=np.float32)
    values *= std
    values += mean


def _fan(values: np.ndarray, filler: FillerParameter, where: str) -> float:
    """Return the number of inputs per output, of outputs per input, or their mean, by `variance_norm`."""
    fan_in = values.size / _length(values, 0, filler, where)
    fan_out = values.size / values.shape[1] if values.ndim > 1 else values.size
    choices = {
        FillerParameter.FAN_IN: fan_in,
        FillerParameter.FAN_OUT: fan_out,
        FillerParameter.AVERAGE: (fan_in + fan_out) / 2,
    }
    return choices[filler.variance_norm]


def _length(values: np.ndarray, axis: int, filler: FillerParameter, where: str) -> int:
    if values.ndim <= axis:
        raise NetError(f"{where}: filler '{filler.type}' needs a blob with axes, got shape {values.shape}")
    length: int = values.shape[axis]
    return length


_Filler = Callable[[np.ndarray, FillerParameter, np.random.Generator, str], None]
_fillers: dict[str, _Filler] = {
    "bilinear": _bilinear,
    "constant": _constant,
    "gaussian": _gaussian,
    "msra": _msra,
    "positive_unitball": _positive_unitball,
    "uniform": _uniform,
    "xavier": _xavier,
}
