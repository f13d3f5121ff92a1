"""cuDNN through NVIDIA's frontend: the plans that its heuristics propose for one convolution."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from scaffe.blob import Shape
from scaffe.errors import CudnnError
from scaffe.layers.im2col import Sizes

IMAGES, MAPS, KERNEL, BIAS = "images", "maps", "kernel", "bias"
UIDS = {IMAGES: 1, MAPS: 2, KERNEL: 3, BIAS: 4}
FIRST, LAST = "channels first", "channels last"


@dataclass(frozen=True)
class Pass:
    """One of the three ways to read y = W * x: cuDNN's name for it, its operands by cuDNN's names, and its result."""

    name: str
    operation: str
    operands: tuple[tuple[str, str], ...]
    result: str


CORRELATE = Pass("correlate", "conv_fprop", (("image", IMAGES), ("weight", KERNEL)), MAPS)
SPREAD = Pass("spread", "conv_dgrad", (("loss", MAPS), ("filter", KERNEL)), IMAGES)
WEIGH = Pass("weigh", "conv_wgrad", (("image", IMAGES), ("loss", MAPS)), KERNEL)


@dataclass(frozen=True)
class Problem:
    """Filters between images and maps, with two or three spatial axes.

    `images` (N x C x size...), `maps` (N x F x out...), `kernel` (F x C / group x size...); `compute` is the kind of
    number that is multiplied. `repeats`: only plans whose results are the same each time.
    """

    images: Shape
    maps: Shape
    kernel: Shape
    stride: Sizes
    pad: Sizes
    dilation: Sizes
    compute: str
    repeats: bool = False

    def work(self, one: Pass) -> str:
        """Return the line of text that names a pass, whatever the batch: ranks may have different shares of it."""
        sides = f"{_times(self.images[1:])} by {_times(self.kernel)}"
        window = f"stride {_times(self.stride)}, pad {_times(self.pad)}, dilation {_times(self.dilation)}"
        return f"cuDNN {one.name} {sides}, {window}, {self.compute}{', repeatable' if self.repeats else ''}"


class Cudnn:
    """The library on one GPU; `where` says for which device graphs are made. To be used by one thread at a time."""

    def __init__(self, frontend: ModuleType, handle: Any = None, device: Any = None):
        self.frontend, self.handle = frontend, handle
        self.where = {"handle": handle} if device is None else {"device_property": device}
        self.known: dict[Hashable, Any] = {}  # what was chosen for problems: layers and nets share it
        self.refusals = frontend.cudnnGraphNotSupportedError, RuntimeError, ValueError

    def plans(self, problem: Problem, one: Pass, layout: str, biased: bool = False) -> Iterator[Plan]:
        """Iterate over the plans for a pass, as the heuristics order them; none where the library has none.

        `biased`: the result has a bias for each channel added.
        """
        graph = self._graph(problem, one, layout, biased)
        heuristics = self.frontend.heur_mode
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([heuristics.A, heuristics.B, heuristics.FALLBACK])
        except self.refusals:
            return
        graph.deselect_numeric_notes(self._unwanted(problem))
        for index in range(graph.get_execution_plan_count()):
            yield Plan(self, graph, index)

    def _unwanted(self, problem: Problem) -> list[Any]:
        """Return what plans note of their numbers that is not what was asked for."""
        notes = self.frontend.numerical_note
        unwanted = [notes.DOWN_CONVERT_INPUTS]
        if problem.compute == "float32":
            unwanted.append(notes.TENSOR_CORE)  # on float32 numbers they are TF32's
        if problem.compute == "bf16":
            unwanted.append(notes.REDUCED_PRECISION_REDUCTION)  # sums are to be float32
        if problem.repeats:
            unwanted.append(notes.NONDETERMINISTIC)
        return unwanted

    def _graph(self, problem: Problem, one: Pass, layout: str, biased: bool) -> Any:
        types = self.frontend.data_type
        kind = types.BFLOAT16 if problem.compute == "bf16" else types.FLOAT
        graph = self.frontend.pygraph(
            io_data_type=kind, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT, **self.where
        )

        def tensor(role: str, shape: Shape) -> Any:
            stride = strides(shape, layout)
            return graph.tensor(name=role, dim=list(shape), stride=stride, data_type=kind, uid=UIDS[role])

        operands = {name: tensor(role, getattr(problem, role)) for name, role in one.operands}
        pad = {"pre_padding": list(problem.pad), "post_padding": list(problem.pad)}
        window = {"stride": list(problem.stride), "dilation": list(problem.dilation)}
        result, shape = getattr(graph, one.operation)(**operands, **pad, **window), getattr(problem, one.result)
        if biased:
            result.set_dim(list(shape)).set_stride(strides(shape, layout))
            ones = (1,) * (len(shape) - 2)
            result = graph.bias(input=result, bias=tensor(BIAS, (1, shape[1], *ones)))
        result.set_output(True).set_data_type(kind).set_dim(list(shape)).set_stride(strides(shape, layout))
        result.set_uid(UIDS[one.result])
        return graph


class Plan:
    """One way of the library to run a graph."""

    def __init__(self, library: Cudnn, graph: Any, index: int):
        self.library, self.graph, self.index = library, graph, index

    @cached_property
    def name(self) -> str:
        """The library's engine and its knobs."""
        return self.graph.get_plan_name_at_index(self.index)

    def build(self) -> bool:
        """Make it ready to run; say whether it can be, on this GPU and with numbers as asked for."""
        try:
            self.graph.build_plan_at_index(self.index)
        except self.library.refusals:
            return False
        return True

    @cached_property
    def nbytes(self) -> int:
        """Bytes of workspace that it needs, once it is built."""
        return self.graph.get_workspace_size_plan_at_index(self.index)

    def run(self, pointers: dict[int, int], workspace: int, stream: int) -> None:
        """Run it on a stream, over arrays by their uids. Raise CudnnError where the library does not."""
        handle = self.library.handle
        self.library.frontend.set_stream(handle, stream)
        try:
            self.graph.execute_plan_at_index(pointers, workspace, self.index, handle)
        except self.library.refusals as error:
            raise CudnnError(f"plan {self.name}: {' '.join(str(error).split())}") from None


def strides(shape: Shape, layout: str) -> list[int]:
    """Return how many elements lie between neighbours on each axis (n x channels x ...)."""
    order = [*range(len(shape))] if layout == FIRST else [0, *range(2, len(shape)), 1]
    found, step = [0] * len(shape), 1
    for axis in reversed(order):
        found[axis] = step
        step *= shape[axis]
    return found


def load() -> Cudnn:
    """Return the library for the GPU in use. Raise CudnnError, which says what to do, where it can't be had."""
    try:
        import cudnn

        return Cudnn(cudnn, cudnn.create_handle())
    except ModuleNotFoundError as error:
        raise CudnnError(f"no module '{error.name}' (pip install 'scaffe[cuda]')") from None
    except Exception as error:  # the frontend's, of a library that is missing, too old, or finds no GPU
        raise CudnnError(f"cuDNN can't be used: {' '.join(str(error).split())}") from None


def _times(shape: Shape) -> str:
    return "x".join(map(str, shape))
