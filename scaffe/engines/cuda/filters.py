"""Filters: the three passes of a convolution by cuDNN, each by its chosen kernel.

In float32 arrays are channels first: a kernel with channels last has its operands converted before it, its result after
it, and its time includes that. In other numbers all kernels have channels last. So have typed blobs (forms.py), which
need no conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from scaffe.blob import Shape
from scaffe.devices.choices import Choices, Work
from scaffe.engines.cuda import kernel_choice
from scaffe.engines.cuda.column_passes import ColumnPasses
from scaffe.engines.cuda.cudnn import (
    BIAS,
    FIRST,
    IMAGES,
    LAST,
    MAPS,
    NO_EPILOGUE,
    UIDS,
    WEIGHTS,
    Cudnn,
    CudnnKernel,
    Epilogue,
    Pass,
    Problem,
)
from scaffe.engines.cuda.forms import TYPES, last_shape
from scaffe.engines.cuda.launcher import Launcher
from scaffe.engines.cuda.layouts import BF16, channels_first, channels_last, finish_rows

ALIGNMENT = 16  # bytes, of operands of the library's kernels
PERIOD = 1_000_003  # of the random numbers over which kernels are timed
COLUMNS = "columns"  # in place of a kernel's name
MOST_PARTS = 8  # groups that are computed one by one; more would be many small kernels
# Of a result's largest magnitude: twice what sums of rounded numbers differ by, and far less than a wrong kernel does.
TOLERANCE = {"float32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}


class Variant(NamedTuple):
    """A form of a pass: the layout of all operands, what of the epilogue the kernel computes, in how many `parts`.

    In several parts the kernel runs once for each group of channels, over slices of the arrays.
    """

    layout: str
    after: Epilogue
    parts: int = 1

    def __str__(self) -> str:
        apart = " by groups" if self.parts > 1 else ""
        return f"{self.layout}{apart}{str(self.after).replace(' and', ' with', 1)},"


@dataclass(frozen=True)
class FilterKernel:
    """A kernel of cuDNN for a variant of a pass."""

    kernel: CudnnKernel
    variant: Variant

    @property
    def name(self) -> str:
        return f"{self.variant} {self.kernel.name}"

    @property
    def nbytes(self) -> int:
        return self.kernel.nbytes

    def build(self) -> bool:
        return self.kernel.build()


class Side(NamedTuple):
    """An array that a pass reads or writes: float32 channels first, or in the kernels' type and channels last."""

    array: Any
    is_last: bool = False


class FilterOperand:
    """An array that passes read, converted to a layout when a kernel first reads that layout.

    Copies lie in the engine's scratch memory: they are valid until the next operand of the same role.
    """

    def __init__(self, engine: Launcher, role: str, side: Side):
        self.engine, self.role, self.array = engine, role, side.array
        self._pointers: dict[str, int] = {LAST: side.array.data.ptr} if side.is_last else {}

    def pointer(self, layout: str) -> int:
        """Return the device address of the values in that layout."""
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


Operands = dict[str, FilterOperand]  # by role


class Filters:
    """The passes of one problem, each by the kernel that `choices` name, else the first that cuDNN proposes.

    No kernel needs more than `limit` bytes of workspace.
    """

    def __init__(self, engine: Launcher, library: Cudnn, problem: Problem, limit: float, choices: Choices):
        self.engine, self.library, self.problem, self.limit, self.choices = engine, library, problem, limit, choices
        self.dtype = TYPES.get(problem.compute)  # of converted operands; None where they need not be converted
        self._chosen: dict[tuple[Pass, Epilogue], FilterKernel | None] = {}

    def work(self, one: Pass, after: Epilogue) -> str:
        """Return the name of a pass and what comes after it."""
        return f"{self.problem.work(one)}{after}"

    def kernel(self, one: Pass, after: Epilogue = NO_EPILOGUE) -> FilterKernel | None:
        """Return the kernel of a pass, None where cuDNN has none that is right."""
        if (one, after) not in self._chosen:
            name = self.choices.of(self.work(one, after), "")
            key, known = (self.problem, one, after, name, self.limit), self.library.known
            if key not in known:
                candidates = self._candidates(one, after, name) if name != COLUMNS else ()
                known[key] = kernel_choice.choose(candidates, name, self.limit)
            self._chosen[one, after] = known[key]
        return self._chosen[one, after]

    def has(self, one: Pass, *after: Epilogue) -> bool:
        """Return whether cuDNN has a right kernel for a pass, with each of these epilogues."""
        return all(self.kernel(one, each) for each in after or (NO_EPILOGUE,))

    def timing(self, one: Pass, after: Epilogue) -> Work:
        """Return what times the kernels of a pass."""
        circumstances = f"batch {self.problem.images[0]}, workspace {self.limit:.0f}"
        return Work(partial(self.time, one, after), self.problem.products, circumstances)

    def time(self, one: Pass, after: Epilogue) -> dict[str, float]:
        """Return the seconds of a pass by each kernel that is right, over arrays of its own.

        Return {} without memory for these, and COLUMNS alone where kernels were wrong and none is right.
        """
        try:
            found = self._time(one, after)
        except MemoryError:
            found = {}
        self.engine.drop_scratch()
        self.engine.gpu.trim()
        return found

    def _time(self, one: Pass, after: Epilogue) -> dict[str, float]:
        sides = {role: self._invented(role) for role in (IMAGES, MAPS, WEIGHTS)}
        bias = self._noise(getattr(self.problem, one.result)[1:2], UIDS[BIAS]) if after.bias else None

        def runner(chosen: FilterKernel) -> Callable[[], None]:
            return lambda: self._run(chosen, one, after, self.operands(**sides), sides[one.result], bias)

        engine, result = self.engine, sides[one.result]
        arrays = {role: side.array for role, side in sides.items()}
        expected = ColumnPasses(engine, self.problem).result(one, arrays, result.is_last, bias)
        if after.relu:
            expected = engine.gpu.xp.maximum(expected, 0)
        tolerance = TOLERANCE[self.problem.compute]
        agreement = kernel_choice.Agreement(
            engine.gpu.xp,
            result.array,
            expected,
            tolerance,
            engine.buffers,
            operand=sides[WEIGHTS].array if after.relu else None,
        )
        found = kernel_choice.time(self._candidates(one, after), self.limit, runner, engine.elapsed, agreement)
        return found or ({COLUMNS: 1.0} if agreement.wrong else {})  # of one way the seconds don't count

    def operands(self, **sides: Side) -> Operands:
        """Return the operands of passes, from arrays by role."""
        return {role: FilterOperand(self.engine, role, self._shaped(role, side)) for role, side in sides.items()}

    def run(
        self, one: Pass, operands: Operands, result: Side, bias: Any = None, relu: bool = False, add: bool = False
    ) -> None:
        """Write the result of a pass into `result`, or add it to one that is channels first.

        Add `bias` (channels, float32) to it if given; then, with `relu`, replace what is below 0 by 0.
        """
        after = Epilogue(bias is not None, relu)
        chosen = self.kernel(one, after)
        assert chosen is not None
        self._run(chosen, one, after, operands, result, bias, add)

    def _run(
        self,
        chosen: FilterKernel,
        one: Pass,
        after: Epilogue,
        operands: Operands,
        side: Side,
        bias: Any,
        add: bool = False,
    ) -> None:
        engine, fused, layout = self.engine, chosen.variant.after, chosen.variant.layout
        result = self._shaped(one.result, side).array
        pointers = {role: operands[role].pointer(layout) for _, role in one.operands}
        if fused.bias:
            pointers[BIAS] = self._bias(bias).data.ptr
        plain = layout == FIRST and not add and result.data.ptr % ALIGNMENT == 0
        direct = plain or side.is_last
        target = result if direct else scratch(engine, one.result, result.size, layout)
        pointers[one.result] = target.data.ptr
        workspace = engine.scratch("workspace", (max(1, chosen.nbytes),), np.uint8)
        for part in range(chosen.variant.parts):
            at = {UIDS[role]: pointer + part * self._step(role, one) for role, pointer in pointers.items()}
            chosen.kernel.run(at, workspace.data.ptr, engine.stream)
        self._finish(target, side, result, layout, None if fused.bias else bias, after.relu and not fused.relu, add)

    def _step(self, role: str, one: Pass) -> int:
        """Return the bytes from one group's part of an array to the next group's, channels last."""
        own = self.problem.of_a_group
        of_result: int = getattr(own, one.result)[1]
        counts = {IMAGES: own.images[1], MAPS: own.maps[1], WEIGHTS: prod(own.weights), BIAS: of_result}
        return counts[role] * self._itemsize

    @property
    def _itemsize(self) -> int:
        """Bytes of an element, channels last."""
        return 2 if self.problem.compute == "bf16" else 4

    def _finish(self, target: Any, side: Side, result: Any, layout: str, bias: Any, relu: bool, add: bool) -> None:
        """Bring what a kernel wrote into `target` to the result, and do what of the epilogue is left."""
        engine = self.engine
        if side.is_last:
            if bias is not None or relu:
                finish_rows(engine, result, bias, relu)
            return
        if layout == LAST:
            channels_first(engine, target, result, bias, add)
        else:
            _copy(target, result, bias, add)
        if relu:
            engine.over("relu", "relu", result.size, result, result, 0.0, each=4)

    def _shaped(self, role: str, side: Side) -> Side:
        return side if side.is_last else Side(side.array.reshape(getattr(self.problem, role)))

    def _bias(self, bias: Any) -> Any:
        """Return a bias as kernels add it."""
        if self.problem.compute != "bf16":
            return bias
        rounded = scratch(self.engine, BIAS, bias.size, LAST)
        channels_last(self.engine, bias.reshape(1, -1), rounded)
        return rounded

    def _candidates(self, one: Pass, after: Epilogue, name: str = "") -> Iterator[FilterKernel]:
        """Iterate over the kernels of a pass, those of the variant of the one called `name` first."""
        for variant in sorted(self._variants(after), key=lambda variant: not name.startswith(str(variant))):
            problem = self.problem if variant.parts == 1 else self.problem.of_a_group
            for kernel in self.library.kernels(problem, one, variant.layout, variant.after):
                yield FilterKernel(kernel, variant)

    def _variants(self, after: Epilogue) -> Iterator[Variant]:
        """Iterate over the variants of a pass. What is not timed takes the first, whose ReLU is a kernel of ours."""
        of_bias = Epilogue(bias=after.bias)
        if self.problem.compute == "float32":
            kinds, fused = product((FIRST, LAST), (1,)), (NO_EPILOGUE, of_bias, after)
        else:
            kinds = product((LAST,), (1, self.problem.groups) if self._can_be_parted else (1,))
            fused = of_bias, after, NO_EPILOGUE
        for (layout, parts), each in product(kinds, dict.fromkeys(fused)):
            if each.bias or not each.relu:  # the library has no kernel for a ReLU alone
                yield Variant(layout, each, parts)

    @property
    def _can_be_parted(self) -> bool:
        """Whether each group's channels are a slice that kernels can read and write where it lies."""
        own = self.problem.of_a_group
        aligned = all(shape[1] * self._itemsize % ALIGNMENT == 0 for shape in (own.images, own.maps))
        return 1 < self.problem.groups <= MOST_PARTS and aligned

    def _noise(self, shape: Shape, seed: int, dtype: Any = np.float32) -> Any:
        """Return an array of random numbers, which repeat after a while."""
        xp = self.engine.gpu.xp
        flat, numbers = xp.empty(prod(shape), dtype), xp.asarray(_random(seed, dtype == BF16))
        for start in range(0, flat.size, numbers.size):
            part = flat[start : start + numbers.size]
            part[...] = numbers[: part.size]
        return flat.reshape(shape)

    def _invented(self, role: str) -> Side:
        """Return an array of random numbers as blobs or converted weights lie."""
        shape = getattr(self.problem, role)
        if self.dtype is None:
            return Side(self._noise(shape, UIDS[role]))
        return Side(self._noise(last_shape(shape), UIDS[role], self.dtype), is_last=True)


def scratch(engine: Launcher, role: str, count: int, layout: str) -> Any:
    """Return scratch memory for `count` elements of the kernels' data type; the role's next array overwrites it."""
    low = engine.compute.numbers == "bf16" and layout == LAST
    return engine.scratch(role, (count,), BF16 if low else np.float32)


@cache
def _random(seed: int, low: bool) -> np.ndarray:
    """Return random numbers, float32 or (`low`) the bits of bfloat16."""
    numbers = np.random.default_rng(seed).standard_normal(PERIOD, np.float32)
    return (numbers.view(np.uint32) >> 16).astype(BF16) if low else numbers


def _copy(target: Any, result: Any, bias: Any, add: bool) -> None:
    """Bring what a kernel wrote channels first into `target` to `result`, unless that is the target; add the bias."""
    if add:
        result += target.reshape(result.shape)
    elif target is not result:
        result[...] = target.reshape(result.shape)
    if bias is not None:
        pixels = result.reshape(*result.shape[:2], -1)
        pixels += bias[:, None]


def problem_of(layer: Any) -> Problem | None:
    """Return the problem that a convolution layer poses to cuDNN, None where it supports no such convolution.

    One spatial axis becomes two, the first of length 1.
    """
    window, axes = layer.window, len(layer.window.size)
    if not 1 <= axes <= 3 or not prod((layer.images, *window.size, *window.out)):
        return None
    one = (1,) if axes == 1 else ()
    none = (0,) if axes == 1 else ()
    return Problem(
        images=(layer.images, layer.channels, *one, *window.size),
        maps=(layer.images, layer.filters, *one, *window.out),
        weights=(layer.filters, layer.channels // layer.group, *one, *window.kernel),
        stride=(*one, *window.stride),
        pad=(*none, *window.pad),
        dilation=(*one, *window.dilation),
        compute=layer.context.compute.numbers,
        repeats=layer.context.compute.deterministic,
    )
