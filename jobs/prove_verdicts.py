"""Verdicts of prove_on_gpu.sh: scaffe's ratio to the fastest form of PyTorch, over all steps that have measured one.

A step measures some forms, and its own line names the best of these. What counts is the best of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

FORMS = "eager", "graphs", "compiled", "compiled_graphs", "autotuned"  # of jobs/bench/gpu.py
ASKED = {"alexnet": 1.5, "resnet50": 1.0, "googlenet": 1.0, "vgg16": 1.0}  # at least, in bf16
NET = re.compile(r"(\w+) (float32|tf32|bf16) \d+: \d+ img/s;")
FORM = re.compile(r"; (\w+)(?: first)? \d+ x(\d+\.\d+) \(")


class Line(Protocol):
    """A line of the table."""

    figures: str
    when: str
    code: str


def verdicts(results: Sequence[Line]) -> Iterator[str]:
    """Yield a sentence for each net and type of number, in the table's order."""
    nets: dict[tuple[str, str], list[Line]] = {}
    for one in results:
        if found := NET.search(one.figures):
            nets.setdefault((found[1], found[2]), []).append(one)
    for (net, numbers), lines in nets.items():
        code = _code(max(lines, key=lambda one: one.when))
        ratios: dict[str, float] = {}
        for form, ratio in (pair for one in lines if _code(one) == code for pair in FORM.findall(one.figures)):
            ratios[form] = min(ratios.get(form, float(ratio)), float(ratio))
        if ratios:
            yield _verdict(net, numbers, ratios)


def _code(line: Line) -> str:
    """Return the digest of the files that ran; the command's is behind it."""
    return line.code.partition(" ")[0]


def _verdict(net: str, numbers: str, ratios: dict[str, float]) -> str:
    """Return the sentence: the ratio, to which form, of which forms, and what was asked."""
    best = min(ratios, key=lambda form: ratios[form])
    said = f"{net} {numbers}: x{ratios[best]:.2f} of PyTorch's best, {best}, of {', '.join(ratios)}"
    asked = ASKED.get(net) if numbers == "bf16" else None
    if asked is not None:
        said += f"; asked x{asked}: {'reached' if ratios[best] >= asked else 'missed'}"
    left = [form for form in FORMS if form not in ratios]
    return said + (f"; not measured: {', '.join(left)}" if left else "")
