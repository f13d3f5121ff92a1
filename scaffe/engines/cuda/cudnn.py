"""cuDNN through NVIDIA's frontend: the kernels (execution plans) that its heuristics propose for one convolution."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

from scaffe.blob import Shape
from scaffe.errors import CudnnError
from scaffe.layers.im2col import Sizes

IMAGES, MAPS, WEIGHTS, BIAS = "images", "maps", "weights", "bias"
UIDS = {IMAGES: 1, MAPS: 2, WEIGHTS: 3, BIAS: 4}
FIRST, LAST = "channels first", "channels last"


@dataclass(frozen=True)
class Pass:
    """A pass of a convolution: cuDNN's operation, the roles of its operands by cuDNN's names, and of its result."""

    name: str
    operation: str
    operands: tuple[tuple[str, str], ...]
    result: str


CORRELATE = Pass("correlate", "conv_fprop", (("image", IMAGES), ("weight", WEIGHTS)), MAPS)
SPREAD = Pass("spread", "conv_dgrad", (("loss", MAPS), ("filter", WEIGHTS)), IMAGES)
WEIGH = Pass("weigh", "conv_wgrad", (("image", IMAGES), ("loss", MAPS)), WEIGHTS)


class Epilogue(NamedTuple):
    """What is done with the results of a pass before they are written: a bias per channel is added, then a ReLU."""

    bias: bool = False
    relu: bool = False

    def __str__(self) -> str:
        return "".join(f" and {name}" for name, wanted in (("bias", self.bias), ("ReLU", self.relu)) if wanted)


NO_EPILOGUE = Epilogue()


@dataclass(frozen=True)
class Problem:
    """A convolution over two or three spatial axes.

    Shapes: `images` (N x C x size...), `maps` (N x F x out...), `weights` (F x C / group x size...). `compute` is the
    data type of the products. With `repeats` only deterministic kernels are proposed. Where channels lie last, images
    and maps may be slices of arrays with `images_pitch` and `maps_pitch` channels; 0 stands for their own.
    """

    images: Shape
    maps: Shape
    weights: Shape
    stride: Sizes
    pad: Sizes
    dilation: Sizes
    compute: str
    repeats: bool = False
    images_pitch: int = 0
    maps_pitch: int = 0

    @property
    def groups(self) -> int:
        """The number of groups of channels."""
        return self.images[1] // self.weights[1]

    @property
    def of_a_group(self) -> Problem:
        """The convolution of one group's channels, slices of the images and maps where these lie channels last."""
        (n, channels, *size), (_, filters, *out), groups = self.images, self.maps, self.groups
        return replace(
            self,
            images=(n, channels // groups, *size),
            maps=(n, filters // groups, *out),
            weights=(filters // groups, *self.weights[1:]),
            images_pitch=self.images_pitch or channels,
            maps_pitch=self.maps_pitch or filters,
        )

    def strides(self, role: str, layout: str) -> list[int]:
        """Return the strides of an operand or result, in elements."""
        return strides(getattr(self, role), layout, {IMAGES: self.images_pitch, MAPS: self.maps_pitch}.get(role, 0))

    @property
    def products(self) -> int:
        """The number of products of a pass."""
        return prod(self.maps) * prod(self.weights[1:])

    def work(self, one: Pass) -> str:
        """Return the name of a pass, by its shapes without the batch, of which ranks may have different shares."""
        sides = f"{_times(self.images[1:])} by {_times(self.weights)}"
        window = f"stride {_times(self.stride)}, pad {_times(self.pad)}, dilation {_times(self.dilation)}"
        pitch = "".join(f", {n} {what}" for n, what in ((self.images_pitch, "in"), (self.maps_pitch, "out")) if n)
        return f"cuDNN {one.name} {sides}{pitch}, {window}, {self.compute}{', repeatable' if self.repeats else ''}"


class Cudnn:
    """The library on one GPU, for one thread at a time.

    `handle` runs kernels; `device`, cuDNN's description of a GPU, builds kernels for a GPU that need not be present.
    """

    def __init__(self, frontend: ModuleType, handle: Any = None, device: Any = None):
        self.frontend, self.handle = frontend, handle
        self.where = {"handle": handle} if device is None else {"device_property": device}
        self.known: dict[Hashable, Any] = {}  # the chosen kernels by problem and pass, for all layers and nets
        self.refusals = frontend.cudnnGraphNotSupportedError, RuntimeError, ValueError

    @property
    def version(self) -> str:
        """The versions of the library and its frontend."""
        return f"cuDNN {self.frontend.backend_version()}, frontend {self.frontend.__version__}"

    def kernels(self, problem: Problem, one: Pass, layout: str, after: Epilogue = NO_EPILOGUE) -> Iterator[CudnnKernel]:
        """Iterate over the kernels for a pass in the heuristics' order; over none where the library has none.

        `layout` is FIRST or LAST, of all operands and the result. The bias of `after` is rounded to bfloat16 if the
        operands are: the library has no kernel that adds a float32 one to these.
        """
        graph = self._graph(problem, one, layout, after)
        heuristics = self.frontend.heur_mode
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([heuristics.A, heuristics.B, heuristics.FALLBACK])
        except self.refusals:
            return
        graph.deselect_numeric_notes(self._unwanted(problem))
        for index in range(graph.get_execution_plan_count()):
            yield CudnnKernel(self, graph, index)

    def _unwanted(self, problem: Problem) -> list[Any]:
        """Return the numerical notes that rule a kernel out."""
        notes = self.frontend.numerical_note
        unwanted = [notes.DOWN_CONVERT_INPUTS]
        if problem.compute == "float32":
            unwanted.append(notes.TENSOR_CORE)  # which round float32 operands to TF32
        if problem.compute == "bf16":
            unwanted.append(notes.REDUCED_PRECISION_REDUCTION)  # accumulation is in float32
        if problem.repeats:
            unwanted.append(notes.NONDETERMINISTIC)
        return unwanted

    def _graph(self, problem: Problem, one: Pass, layout: str, after: Epilogue) -> Any:
        """Return the frontend's graph of one operation and what comes after it."""
        types = self.frontend.data_type
        kind = types.BFLOAT16 if problem.compute == "bf16" else types.FLOAT
        graph = self.frontend.pygraph(
            io_data_type=kind, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT, **self.where
        )

        def tensor(role: str, shape: Shape, stride: list[int]) -> Any:
            return graph.tensor(name=role, dim=list(shape), stride=stride, data_type=kind, uid=UIDS[role])

        operands = {
            name: tensor(role, getattr(problem, role), problem.strides(role, layout)) for name, role in one.operands
        }
        pad = {"pre_padding": list(problem.pad), "post_padding": list(problem.pad)}
        window = {"stride": list(problem.stride), "dilation": list(problem.dilation)}
        result, shape = getattr(graph, one.operation)(**operands, **pad, **window), getattr(problem, one.result)
        stride = problem.strides(one.result, layout)
        if after.bias:
            result.set_dim(list(shape)).set_stride(stride)
            of_bias = (1, shape[1], *(1,) * (len(shape) - 2))
            result = graph.bias(input=result, bias=tensor(BIAS, of_bias, strides(of_bias, layout)))
        if after.relu:
            result.set_dim(list(shape)).set_stride(stride)
            result = graph.relu(input=result)
        result.set_output(True).set_data_type(kind).set_dim(list(shape)).set_stride(stride)
        result.set_uid(UIDS[one.result])
        return graph


class CudnnKernel:
    """An execution plan of cuDNN for a graph: one kernel, or a few in sequence."""

    def __init__(self, library: Cudnn, graph: Any, index: int):
        self.library, self.graph, self.index = library, graph, index

    @cached_property
    def name(self) -> str:
        """The plan's name: cuDNN's engine and its knobs."""
        found: str = self.graph.get_plan_name_at_index(self.index)
        return found

    def build(self) -> bool:
        """Compile it; return whether cuDNN supports it on this GPU and with these data types."""
        try:
            self.graph.build_plan_at_index(self.index)
        except self.library.refusals:
            return False
        return True

    @cached_property
    def nbytes(self) -> int:
        """Bytes of its workspace; valid after `build`."""
        found: int = self.graph.get_workspace_size_plan_at_index(self.index)
        return found

    def run(self, pointers: dict[int, int], workspace: int, stream: int) -> None:
        """Launch it on a stream. `pointers` are device addresses by UID. Raise CudnnError where cuDNN refuses."""
        handle = self.library.handle
        self.library.frontend.set_stream(handle, stream)
        try:
            self.graph.execute_plan_at_index(pointers, workspace, self.index, handle)
        except self.library.refusals as error:
            raise CudnnError(f"execution plan {self.name}: {' '.join(str(error).split())}") from None


def strides(shape: Shape, layout: str, pitch: int = 0) -> list[int]:
    """Return the strides, in elements, of an array (n x channels x ...) in that layout.

    Channels that lie last may be a slice of `pitch` channels.
    """
    order = [*range(len(shape))] if layout == FIRST else [0, *range(2, len(shape)), 1]
    found, step = [0] * len(shape), 1
    for axis in reversed(order):
        found[axis] = step
        step *= pitch or shape[axis] if axis == 1 else shape[axis]
    return found


def load() -> Cudnn:
    """Return the library for the current GPU. Raise CudnnError, with what to install, where it cannot be loaded."""
    try:
        import cudnn

        return Cudnn(cudnn, cudnn.create_handle())
    except ModuleNotFoundError as error:
        raise CudnnError(f"no module '{error.name}' (pip install 'scaffe[cuda]')") from None
    except Exception as error:  # the frontend's errors for a missing library, an old one, or no GPU
        raise CudnnError(f"cuDNN can't be used: {' '.join(str(error).split())}") from None


def _times(shape: Shape) -> str:
    return "x".join(map(str, shape))
