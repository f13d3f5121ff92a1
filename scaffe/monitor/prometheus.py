"""PrometheusFile: the last numbers of a run in Prometheus's text format, for a node exporter's textfile collector.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from readers.files import DEVICE, is_device
from scaffe.errors import ScaffeError
from scaffe.files.atomic import remove_unfinished, write_atomically
from scaffe.monitor.file_lock import FileLock
from scaffe.monitor.numbers import Metric, Numbers, Sample

PREFIX = "scaffe_"
COUNTED = {"rank", "ranks"}  # labels of numbers that each measurement gives for all ranks: fewer after a loss


class PrometheusFile:
    """Replace a file by the last value of each number. No other run may write it at the same time.

    All have the label `run`, the file's name: a node exporter refuses a number that two files give alike. Making it
    locks FILE.lock, or else the first `write` does, and each until it can. Raise ScaffeError if another run writes it.
    """

    def __init__(self, path: str | os.PathLike[str], at_once: bool = True):
        self.path = os.path.abspath(path)
        self.name = f"metrics '{path}'"
        if is_device(path):  # each measurement replaces the file
            raise ScaffeError(f"{self.name}: {DEVICE}")
        name = os.fsencode(os.path.basename(self.path)).decode(errors="replace")  # which may not be UTF-8
        self._common = {"run": name.removesuffix(".prom")}
        self._last: dict[Metric, dict[tuple[str, ...], Sample]] = {}
        self._lock = FileLock(f"{self.path}.lock")
        if at_once:
            self._take_lock()

    def _take_lock(self) -> None:
        """Take the lock, and at first remove what a run that was killed has not finished."""
        folder, name = os.path.split(self.path)
        try:
            if self._lock.take():
                remove_unfinished(folder, re.escape(name))
        except BlockingIOError as error:
            who = f"another run, or a solver that is not closed, writes there ({error.strerror})"
            text = f"{self.name}: {who}; give each run a file of its own; the lock is {self._lock.path}"
            raise ScaffeError(text) from None
        except OSError as error:
            raise ScaffeError(f"{self.name}: {(error.strerror or str(error)).lower()}") from None

    def write(self, numbers: Sequence[Numbers]) -> None:
        """Replace the file, which appears complete or not at all. Raise ScaffeError where that fails."""
        self._take_lock()
        for one in numbers:
            self._last |= {sample.metric: {} for sample in one.samples if COUNTED & {*sample.labels}}
            self._take(one.samples)
        if self._last:
            write_atomically(self.path, self.text().encode())

    def _take(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self._last.setdefault(sample.metric, {})[tuple(sample.labels.values())] = sample

    def text(self) -> str:
        """Return the last value of each number, grouped by metric."""
        return "".join(_group(metric, [*samples.values()], self._common) for metric, samples in self._last.items())

    def close(self) -> None:
        """Unlock the file, which stays with the last numbers."""
        self._lock.release()


def _group(metric: Metric, samples: Sequence[Sample], common: Mapping[str, str]) -> str:
    name = PREFIX + metric.name
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
    lines += [f"{name}{{{_labels({**common, **one.labels})}}} {float(one.value)!r}" for one in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
