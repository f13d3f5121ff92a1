"""Replay: run a net by a profile's times: each layer sleeps for its time and computes nothing.

Meanwhile the processor is as idle as while a GPU computes. Parameters, gradients and messages are the net's own, so the
overlap on a cluster of GPUs can be measured without GPUs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

from readers.files import replace_file
from scaffe.errors import ScaffeError
from scaffe.net import Net
from scaffe.tools.benchmark import Times

PREFIX = "replay:"  # of what --compute names
SLACK = 1e-3  # seconds that a layer may be short where the one before it has slept too long


@dataclass(frozen=True)
class Profile:
    """Seconds of each layer's forward and backward, by its name, and of an update of all parameters."""

    layers: Mapping[str, tuple[float, float]]
    update: float = 0.0
    source: str = ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON."""
        layers = [{"name": name, "forward_s": f, "backward_s": b} for name, (f, b) in self.layers.items()]
        text = json.dumps({"update_s": self.update, "layers": layers}, indent=1) + "\n"
        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise ScaffeError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def profile(net: Net, times: Times) -> Profile:
    """Return a net's measured times as a profile."""
    seconds = ((1e-3 * f, 1e-3 * b) for f, b in zip(times.forward, times.backward, strict=True))
    return Profile(dict(zip((layer.name for layer in net.layers), seconds, strict=True)))


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile. Raise ScaffeError for a file that is none."""
    try:
        given = json.loads(Path(path).read_text())
        layers = {
            str(row["name"]): (_seconds(row["forward_s"]), _seconds(row["backward_s"])) for row in given["layers"]
        }
        return Profile(layers, _seconds(given.get("update_s", 0.0)), os.fspath(path))
    except OSError as error:
        raise ScaffeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ScaffeError(f"{path} is no profile of scaffe time --profile: {reason}") from None


def _seconds(value: object) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < float("inf"):
        raise ValueError(f"expected seconds, got {value!r}")
    return float(value)


class Replay:
    """Make a net's layers sleep for their times instead of computing.

    Raise ScaffeError where the profile lacks a layer.
    """

    def __init__(self, net: Net, profile: Profile):
        missing = [layer.name for layer in net.layers if layer.name not in profile.layers]
        if missing:
            raise ScaffeError(f"{profile.source}: no times for layer '{missing[0]}', one of {len(missing)} without")
        times = [profile.layers[layer.name] for layer in net.layers]
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
