"""Filters: the three passes of a convolution by cuDNN, each by the way that was chosen for it.

Blobs hold their channels first. A plan that takes them last, or that multiplies bfloat16, has its operands put so
before it and its result put back behind it, which is part of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from scaffe.blob import Shape
from scaffe.choices import Choices
from scaffe.engines.cuda import ways
from scaffe.engines.cuda.cudnn import BIAS, FIRST, IMAGES, KERNEL, LAST, MAPS, UIDS, Cudnn, Pass, Plan, Problem
from scaffe.engines.cuda.launcher import Launcher
from scaffe.engines.cuda.layouts import BF16, channels_first, channels_last

ALIGNMENT = 16  # bytes: what the library's plans take of their operands


@dataclass(frozen=True)
class Way:
    """A plan for operands in one layout; `biased`: it adds the bias too."""

    plan: Plan
    layout: str
    biased: bool

    @property
    def name(self) -> str:
        return f"{_prefix(self.layout, self.biased)} {self.plan.name}"

    @property
    def nbytes(self) -> int:
        return self.plan.nbytes

    def build(self) -> bool:
        return self.plan.build()


class Operand:
    """An array that passes read, put into each layout once, when it is asked for."""

    def __init__(self, engine: Launcher, role: str, array: Any):
        self.engine, self.role, self.array = engine, role, array
        self._pointers: dict[str, int] = {}

    def pointer(self, layout: str) -> int:
        """Return where the values lie in that layout."""
        if layout not in self._pointers:
            self._pointers[layout] = self._put(layout).data.ptr
        return self._pointers[layout]

    def _put(self, layout: str) -> Any:
        if layout == FIRST and self.array.data.ptr % ALIGNMENT == 0:
            return self.array
        copy = scratch(self.engine, self.role, self.array.size, layout)
        if layout == FIRST:
            copy[...] = self.array.reshape(-1)
        else:
            channels_last(self.engine, self.array, copy)
        return copy


class Filters:
    """The passes of one problem, in the ways that `choices` say or else the first that the library proposes.

    No way needs more than `limit` bytes of workspace.
    """

    def __init__(self, engine: Launcher, library: Cudnn, problem: Problem, limit: float, choices: Choices):
        self.engine, self.library, self.problem, self.limit, self.choices = engine, library, problem, limit, choices
        self._taken: dict[tuple[Pass, bool], Way | None] = {}

    def work(self, one: Pass, biased: bool) -> str:
        """Return the line of text that names a pass, with or without a bias."""
        return self.problem.work(one) + (" and bias" if biased else "")

    def way(self, one: Pass, biased: bool = False) -> Way | None:
        """Return the way of a pass, None where the library has none."""
        if (one, biased) not in self._taken:
            name = self.choices.of(self.work(one, biased), "")
            key, known = (self.problem, one, biased, name, self.limit), self.library.known
            if key not in known:
                known[key] = ways.choose(self._ways(one, biased, name), name, self.limit)
            self._taken[one, biased] = known[key]
        return self._taken[one, biased]

    def time(self, one: Pass, biased: bool) -> dict[str, float]:
        """Return the seconds of a pass in each way there is, over arrays of its own; none without memory for these."""
        try:
            arrays = {role: self._invented(getattr(self.problem, role)) for role in (IMAGES, MAPS, KERNEL)}
            bias = self._invented(arrays[one.result].shape[1:2]) if biased else None
        except MemoryError:
            return {}

        def runner(way: Way) -> Callable[[], None]:
            return lambda: self._run(way, one, self.operands(**arrays), arrays[one.result], bias)

        found = ways.time(self._ways(one, biased), self.limit, runner, self.engine.elapsed)
        self.engine.drop_scratch()
        return found

    def operands(self, **arrays: Any) -> dict[str, Operand]:
        """Return arrays, by their roles, as what passes read."""
        shapes = {role: getattr(self.problem, role) for role in arrays}
        return {role: Operand(self.engine, role, array.reshape(shapes[role])) for role, array in arrays.items()}

    def run(self, one: Pass, operands: dict[str, Operand], result: Any, bias: Any = None, add: bool = False) -> None:
        """Write a pass's result, with a bias for each channel if there is one, or add it to what is there."""
        way = self.way(one, bias is not None)
        assert way is not None
        self._run(way, one, operands, result.reshape(getattr(self.problem, one.result)), bias, add)

    def _run(
        self, way: Way, one: Pass, operands: dict[str, Operand], result: Any, bias: Any, add: bool = False
    ) -> None:
        engine, fused = self.engine, way.biased
        pointers = {UIDS[role]: operands[role].pointer(way.layout) for _, role in one.operands}
        if fused:
            pointers[UIDS[BIAS]] = bias.data.ptr
        direct = way.layout == FIRST and not add and result.data.ptr % ALIGNMENT == 0
        target = result if direct else scratch(engine, one.result, result.size, way.layout)
        pointers[UIDS[one.result]] = target.data.ptr
        workspace = engine.scratch("workspace", (max(1, way.nbytes),), np.uint8)
        way.plan.run(pointers, workspace.data.ptr, engine.stream)
        bias = None if fused else bias
        if way.layout == LAST:
            channels_first(engine, target, result, bias, add)
            return
        if add:
            result += target.reshape(result.shape)
        elif not direct:
            result[...] = target.reshape(result.shape)
        if bias is not None:
            pixels = result.reshape(*result.shape[:2], -1)
            pixels += bias[:, None]

    def _ways(self, one: Pass, biased: bool, name: str = "") -> Iterator[Way]:
        """Iterate over the ways of a pass, those like the one of that name first."""
        low = self.problem.compute == "bf16"
        fused = (False, True) if biased and not low else (False,)  # the library would round the bias to bfloat16
        variants = [(layout, whether) for layout in ((LAST,) if low else (FIRST, LAST)) for whether in fused]
        variants.sort(key=lambda variant: not name.startswith(_prefix(*variant)))
        for layout, whether in variants:
            for plan in self.library.plans(self.problem, one, layout, whether):
                yield Way(plan, layout, whether)

    def _invented(self, shape: Shape) -> Any:
        array = self.engine.gpu.xp.empty(shape, np.float32)
        array[...] = 0.5
        return array


def scratch(engine: Launcher, role: str, count: int, layout: str) -> Any:
    """Return memory for so many numbers as plans in that layout take them; the next array of the role overwrites it."""
    low = engine.compute.numbers == "bf16" and layout == LAST
    return engine.scratch(role, (count,), BF16 if low else np.float32)


def _prefix(layout: str, biased: bool) -> str:
    return f"{layout}{' with bias' if biased else ''},"


def problem_of(layer: Any) -> Problem | None:
    """Return what cuDNN is to compute for a layer, None where it knows no such convolution.

    One spatial axis becomes two, of which the first has length 1.
    """
    window, axes = layer.window, len(layer.window.size)
    if not 1 <= axes <= 3 or not prod((layer.images, *window.size, *window.out)):
        return None
    one = (1,) if axes == 1 else ()
    none = (0,) if axes == 1 else ()
    return Problem(
        images=(layer.images, layer.channels, *one, *window.size),
        maps=(layer.images, layer.filters, *one, *window.out),
        kernel=(layer.filters, layer.channels // layer.group, *one, *window.kernel),
        stride=(*one, *window.stride),
        pad=(*none, *window.pad),
        dilation=(*one, *window.dilation),
        compute=layer.context.compute.numbers,
        repeats=layer.context.compute.deterministic,
    )
