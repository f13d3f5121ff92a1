"""Engine: what a net and its layers ask of the engine that computes them, and the base of every engine.

The engines stand in scaffe.engines; Reference, in scaffe/engines/reference.py, is the one to read first. The base
stands here, below the layers, which get their engine with their context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from scaffe.blob import Blob, Shape, Values
from scaffe.blobs.delivery import Delivery
from scaffe.compute import DEFAULT, Compute
from scaffe.devices.kernel_run import KernelRun
from scaffe.errors import LabelError

REFERENCE = "reference"
NO_GRAPHS = "--graphs on takes a GPU, engine auto, and a net whose shapes stay; take auto"
Group = tuple[int, ...]  # numbers of layers that follow one another


class LayerView(Protocol):
    """A layer, as engines see it."""

    name: str
    blobs: list[Blob]

    @property
    def capturable(self) -> bool: ...

    @property
    def takes_bf16(self) -> bool: ...

    @property
    def views(self) -> bool: ...

    @property
    def reshapes_always(self) -> bool: ...

    @property
    def buffer_bytes(self) -> int: ...

    def begin_pass(self) -> None: ...

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None: ...


class NodeView(Protocol):
    """A layer's node in the graph: is it part of the backward pass, and which bottoms need gradients."""

    backward: bool

    @property
    def down(self) -> Sequence[bool]: ...


class NetView(Protocol):
    """A net, as engines see it."""

    keep_data: bool
    keep_diffs: bool

    @property
    def trains(self) -> bool: ...

    @property
    def layers(self) -> Sequence[LayerView]: ...

    @property
    def nodes(self) -> Sequence[NodeView]: ...

    @property
    def bottoms(self) -> Sequence[Sequence[Blob]]: ...

    @property
    def tops(self) -> Sequence[Sequence[Blob]]: ...

    @property
    def blobs(self) -> Mapping[str, Blob]: ...

    @property
    def outputs(self) -> Sequence[str]: ...

    @property
    def losses(self) -> Sequence[tuple[int, int, float]]: ...

    def forward_layer(self, i: int) -> None: ...

    def backward_layer(self, i: int) -> None: ...

    def loss(self) -> float: ...

    def suspects(self) -> list[str]: ...


class Loss:
    """A rank's part of an iteration's loss, the mean over its passes.

    The threads that compute call `add`, and after the last pass the iteration calls `send`. `value` waits where the
    loss is `late`, that is, still on its way from a device.
    """

    late = False

    def __init__(self, net: NetView):
        self.net, self._sum = net, 0.0

    def add(self, passes: int) -> None:
        """Add the loss of the net's last forward pass, one of so many."""
        self._sum += self.net.loss() / passes

    def send(self) -> None:
        """Start the way to the host."""

    def value(self) -> float:
        """Return the loss. Raise LabelError where a pass met a label that is no class."""
        return self._sum

    def suspects(self) -> list[str]:
        """Return the layers whose part of the last pass's loss is not finite; if none is, all with one."""
        return self.net.suspects()


class Engine:
    """Base class of engines: each computes one net, in one thread at a time.

    A net's layers and update rules are those registered for the engine's `name`, or else the reference's. Arrays are
    `xp`'s. A subclass implements `allocate`, `groups`, `forward` and `backward`; whatever else it leaves out is right
    for an engine that computes in the host's memory. A bare Engine serves layers without a net, as in tests of one.
    """

    name = REFERENCE
    xp: ModuleType = np
    times_kernels = False  # does the plan "auto" time kernels?
    in_host_memory = True  # do parameters lie in the host's memory, which the ranks of a node can share?
    device: Any = None  # that messages are sent from, as collectives.Communicator expects it
    compute: Compute = DEFAULT  # how it computes: what it was created by
    serves = ""  # the net that it computes, for people

    def __init__(self) -> None:
        self._scratch_memory: dict[str, Any] = {}
        self.scratch_version = 0  # changes when scratch memory comes to lie elsewhere
        self.watcher: Callable[[KernelRun], object] | None = None  # called after each run of a kernel, for tools

    # What a net asks.

    @property
    def machine(self) -> str:
        """The device and libraries for which the user's file keeps timed kernels; "" where they are not kept."""
        return ""

    def allocate(self, count: int) -> Any:
        """Return `count` float32 zeros, flat, where parameters and their gradients lie."""
        raise NotImplementedError

    def adopt(self, net: NetView) -> None:
        """Take a net that has been built as the one to compute: choose kernels, plan its memory."""

    def groups(self, net: NetView, starts: Iterable[int] = ()) -> list[Group]:
        """Return the layers in groups, in order, each computed by one call; new groups begin at layers `starts`."""
        raise NotImplementedError

    def forward(self, net: NetView, group: Group) -> None:
        """Compute the tops of a group's layers."""
        raise NotImplementedError

    def backward(self, net: NetView, group: Group) -> None:
        """Compute the gradients of a group's layers, from the last to the first."""
        raise NotImplementedError

    def loss(self, net: NetView) -> Loss:
        """Return a sum for an iteration's loss, 0 so far."""
        return Loss(net)

    def buffers(self) -> list[Any]:
        """Return the memory that it keeps for temporary values."""
        return list(self._scratch_memory.values())

    def begin_pass(self) -> None:
        """Prepare memory for a forward pass. Raise MemoryError where there is too little."""

    def raise_faults(self) -> None:
        """Wait for the last pass. Raise LabelError where it met a label that is no class."""

    def reshaped(self, layer: LayerView) -> None:
        """Take note that a layer's tops may have other shapes than before."""

    def moved(self) -> None:
        """Take note that parameters lie elsewhere, or that layers take other kernels than before."""

    def view(self, blob: Blob, source: Blob) -> None:
        """Make a parameter blob a view of another one's values."""
        blob.array = source.array

    # What layers ask.

    def scratch(self, name: str, shape: Shape, dtype: Any) -> Any:
        """Return an array with any content, in memory that all who ask for that name use in turn.

        The memory grows in the first passes and stays where it is from then on.
        """
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        memory = self._scratch_memory.get(name)
        if memory is None or memory.nbytes < nbytes:
            self._scratch_memory[name] = None  # the old one's memory may serve the new one
            memory = self._scratch_memory[name] = self.xp.zeros(nbytes, np.uint8)
            self.scratch_version += 1
        return memory[:nbytes].view(dtype).reshape(shape)

    def multiply(self, a: Any, b: Any, out: Any, add: bool = False) -> None:
        """Write the product of `a` (M x K) and `b` (K x N) into `out` (M x N), or add it to `out`.

        With three axes, the first counts independent products; a `b` of two axes serves them all.
        """
        if add:
            out += self.xp.matmul(a, b)
        else:
            self.xp.matmul(a, b, out=out)

    def sound_labels(self, layer: LayerView, labels: Blob, good: Any, classes: int, ignore: int | None) -> Any:
        """Return the labels' array, of which those that are not `good` are wrong: neither a class nor `ignore`.

        Raise LabelError for the first of these, here or later in `Loss.value` and `raise_faults`; until then wrong
        labels are 0.
        """
        if not good.all():
            first = int(self.xp.argmin(good))
            row, label = first // (labels.count // labels.num), float(labels.array.reshape(-1)[first])
            raise LabelError(layer.name, row, label, classes)
        return labels.array

    def delivery(self) -> Delivery:
        """Return what brings a data layer's batches to its tops."""
        return Delivery()

    # Threads, tools and failures.

    def enter(self) -> None:
        """Prepare the calling thread for computing: its device, stream and number of threads."""

    def wait(self) -> None:
        """Return when all that the calling thread has begun is done."""

    def format_of(self, values: Values) -> str:
        """Return the number format of a blob's values and their layout, where that is not C order."""
        return "float32"

    def memory_of(self, values: Values) -> dict[int, int]:
        """Return the memory of a blob's values: bytes by address. Values of several blobs may lie in the same."""
        array = values.array
        return {} if array is None else {address(array): array.nbytes}

    def explain(self, error: BaseException) -> str:
        """Say in a line what a device's error means and what to do, "" for any other error."""
        return ""

    def room(self, rows: int) -> str:
        """Say which batch would fit in memory where one of `rows` rows does not, "" where that is unknown."""
        return ""


def address(array: Any) -> int:
    """Return the address of an array's first element, on the host or on a device."""
    found: int = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr
    return found
