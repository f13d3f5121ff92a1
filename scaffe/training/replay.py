"""Replay: run a net by a profile's times: each layer sleeps for its time and computes nothing.

Meanwhile the processor is as idle as while a GPU computes. Parameters, gradients and messages are the net's own, so the
overlap on a cluster of GPUs can be measured without GPUs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Real
from threading import TIMEOUT_MAX
from typing import Any

from readers.files import read_input, replace_file
from scaffe.errors import ScaffeError
from scaffe.net.net import Net
from scaffe.tools.benchmark import Times, batch_size
from scaffe.tools.work import LayerWork, layer_works

PREFIX = "replay:"  # of what --compute names
SLACK = 1e-3  # seconds that a layer may be short where the one before it has slept too long


@dataclass(frozen=True)
class Profile:
    """Seconds of each layer's forward and backward, by its label, and of an update of all parameters.

    `works` counts the layers' work, `batch` the samples and `threads` the threads of the measured passes. A profile
    that was made otherwise need not have them: then they are empty and 0.
    """

    layers: Mapping[str, tuple[float, float]]
    update: float = 0.0
    source: str = ""
    works: Mapping[str, LayerWork] = field(default_factory=dict)
    batch: int = 0
    threads: int = 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON, a layer a line."""
        rows = [json.dumps(self._row(name)) for name in self.layers]
        head = {"update_s": self.update, "batch": self.batch, "threads": self.threads}
        text = json.dumps(head)[:-1] + ', "layers": [\n' + ",\n".join(rows) + "\n]}\n"
        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise ScaffeError(f"{path}: {(error.strerror or str(error)).lower()}") from None

    def _row(self, name: str) -> dict[str, Any]:
        forward, backward = self.layers[name]
        work = asdict(self.works[name]) if name in self.works else {}
        return {"name": name, "forward_s": forward, "backward_s": backward, **work}


def profile(net: Net, times: Times) -> Profile:
    """Return a net's measured times as a profile, with the work of its layers."""
    seconds = ((1e-3 * f, 1e-3 * b) for f, b in zip(times.forward, times.backward, strict=True))
    layers = dict(zip((layer.label for layer in net.layers), seconds, strict=True))
    return Profile(layers, works=layer_works(net), batch=batch_size(net), threads=net.context.compute.threads)


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile. Raise ScaffeError for a file that is none."""
    try:
        given = json.loads(read_input(path))
        layers = {
            str(row["name"]): (_seconds(row["forward_s"]), _seconds(row["backward_s"])) for row in given["layers"]
        }
        works = {str(row["name"]): _work(row) for row in given["layers"] if "flops" in row}
        batch, threads = (_count(given.get(name, 0)) for name in ("batch", "threads"))
        return Profile(layers, _seconds(given.get("update_s", 0.0)), os.fspath(path), works, batch, threads)
    except OSError as error:
        raise ScaffeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ScaffeError(f"{path} is no profile of scaffe time --profile: {reason}") from None


def _seconds(value: object) -> float:
    seconds = _amount(value, "seconds")
    if seconds > TIMEOUT_MAX:
        raise ValueError(f"expected at most {TIMEOUT_MAX:g} seconds, got {value!r}")
    return seconds


def _amount(value: object, what: str = "a number, 0 or more") -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < float("inf"):
        raise ValueError(f"expected {what}, got {value!r}")
    return float(value)


def _work(row: Mapping[str, Any]) -> LayerWork:
    return LayerWork(
        flops=_pair(row["flops"]),
        moved=_pair(row["moved"]),
        parameters=_amount(row["parameters"]),
        gradients=_amount(row["gradients"]),
        units=_count(row["units"]),
    )


def _pair(value: object) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"expected numbers for forward and backward, got {value!r}")
    return _amount(value[0]), _amount(value[1])


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"expected a count, got {value!r}")
    return value


class Replay:
    """Make a net's layers sleep for their times instead of computing.

    Raise ScaffeError where the profile lacks a layer.
    """

    def __init__(self, net: Net, profile: Profile):
        missing = [layer.label for layer in net.layers if layer.label not in profile.layers]
        if missing:
            raise ScaffeError(f"{profile.source}: no times for layer '{missing[0]}', one of {len(missing)} without")
        times = [profile.layers[layer.label] for layer in net.layers]
        self._forward, self._backward = ([each[way] for each in times] for way in (0, 1))
        self._per_element = profile.update / max(1, sum(p.blob.count for p in net.packed.parameters))
        self._until = 0.0
        self.factor = 1.0  # of all times
        net.forward_layer = self.forward_layer  # type: ignore[method-assign]
        net.backward_layer = self.backward_layer  # type: ignore[method-assign]

    def forward_layer(self, i: int) -> None:
        """Take layer i's time."""
        self._take(self._forward[i])

    def backward_layer(self, i: int) -> None:
        """Take layer i's time."""
        self._take(self._backward[i])

    def update(self, part: slice) -> None:
        """Take the time of the update of that part of the packed arrays."""
        time.sleep(self.factor * self._per_element * (part.stop - part.start))

    def _take(self, seconds: float) -> None:
        now = time.perf_counter()
        self._until = max(self._until, now - SLACK) + self.factor * seconds
        if self._until > now:
            time.sleep(self._until - now)
