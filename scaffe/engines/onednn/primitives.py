"""The engine, memories over numpy buffers, and primitives with their arguments.

All are made once per shape. Later iterations bind memories and run primitives, one call of the library each.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from math import prod
from threading import local
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from scaffe.blob import Blob, Form, Values
from scaffe.blobs.packed import aligned_zeros
from scaffe.devices.kernel_run import KernelRun, Tensor
from scaffe.engine import NetView, address
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.blob_types import low_blobs
from scaffe.engines.onednn.buffer_pool import BufferPool
from scaffe.engines.onednn.descriptors import Desc, Handle, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.sgemm import Sgemm, float32
from scaffe.engines.reference import Reference
from scaffe.errors import OnednnError
from scaffe.layers.layer import Layer
from scaffe.monitor.log import log

FUSED = "fused, not computed"  # the format of values that a primitive of several layers leaves out


class _Entered(local):
    """The number of the engine that the calling thread has entered last, 0 for none."""

    engine = 0


_entered = _Entered()
_READ = lib.ARG_SRC, lib.ARG_MULTIPLE_SRC, lib.ARG_DIFF_DST  # arguments of which every primitive has one
_WRITTEN = lib.ARG_DIFF_SRC, lib.ARG_DIFF_WEIGHTS, lib.ARG_DST
_numbers = count(1)


class Onednn(Reference):
    """Make descriptors, memories and primitives for one net, and run them on its thread.

    A net's instances each have their own. `threads` is how many OpenMP threads a primitive uses, 0 for OpenMP's own
    choice. With `compute` "bf16" products multiply bfloat16 numbers, and blobs between layers that take these hold
    them (blob_types.py). All primitives share one scratchpad, since they run one after the other.
    """

    name = "onednn"

    def __init__(self, threads: int = 0, compute: str = "float32"):
        super().__init__()
        self.library, self.threads, self.numbers = lib.load(), threads, compute
        self.kind = lib.BF16 if compute == "bf16" else lib.F32
        if self.kind == lib.BF16:
            self._check_bf16()
        self._openmp = lib.openmp()
        self._number = next(_numbers)
        self.enter()
        self._engine = Handle(self.library, "engine", self.library.create("engine_create", lib.CPU, 0))
        self.handle = self._engine.handle
        self._stream = Handle(self.library, "stream", self.library.create("stream_create", self.handle, 1))
        self.stream = self._stream.handle
        self.attributes = self._attributes()
        self._scratch: np.ndarray | None = None
        self._scratchpads: weakref.WeakSet[Memory] = weakref.WeakSet()
        self.gradients = BufferPool()
        self._low: weakref.WeakSet[Blob] = weakref.WeakSet()

    def __str__(self) -> str:
        return f"oneDNN {self.library.release} ({self.library.path}){self.suffix}"

    def _check_bf16(self) -> None:
        """Warn where bfloat16 is emulated. Raise OnednnError where it is not even that."""
        isa = self.library.isa
        if not isa & lib.ISA_AVX512:
            raise OnednnError(f"bf16 needs AVX-512, oneDNN uses {self.library.isa_name} here; compute in float32")
        if not isa & lib.ISA_BF16:
            _warn_of_emulation()

    @property
    def suffix(self) -> str:
        """What sets apart the work that is done in other numbers than float32."""
        return "" if self.kind == lib.F32 else f", {self.numbers}"

    def adopt(self, net: NetView) -> None:
        if self.kind != lib.F32:
            self._low = weakref.WeakSet(low_blobs(net))

    def kind_of(self, blob: Blob) -> int:
        """Return the data type of a blob's values and gradient in the engine's own memories."""
        return self.kind if blob in self._low else lib.F32

    def enter(self) -> None:
        """Give the calling thread its number of OpenMP threads, which OpenMP keeps for each thread by itself."""
        if _entered.engine != self._number:
            _entered.engine = self._number
            if self.threads and self._openmp is not None:
                self._openmp.omp_set_num_threads(self.threads)

    def visit(self) -> None:
        """Enter only from a thread that has entered no engine: another may compute another engine's net."""
        if not _entered.engine:
            self.enter()

    def _attributes(self, post_ops: int = 0) -> Handle:
        library = self.library
        attributes = Handle(library, "primitive_attr", library.create("primitive_attr_create"))
        library.call("primitive_attr_set_scratchpad_mode", attributes.handle, lib.SCRATCHPAD_USER)
        if post_ops:
            library.call("primitive_attr_set_post_ops", attributes.handle, post_ops)
        return attributes

    def adding(self, scale: float = 1.0) -> Handle:
        """Return attributes of a primitive that adds to what is in its destination, times `scale`."""
        post_ops = Handle(self.library, "post_ops", self.library.create("post_ops_create"))
        self.library.call("post_ops_append_sum", post_ops.handle, scale, 0, 0)
        return self._attributes(post_ops.handle)

    def scaling(self, scale: float) -> Handle:
        """Return such attributes of a binary primitive whose sources have factors of their own too, given at run."""
        attributes = self.adding(scale)
        for arg in (lib.ARG_SRC, lib.ARG_SRC_1):
            self.library.call("primitive_attr_set_scales_mask", attributes.handle, arg, 0)
        return attributes

    def factored(self, arg: int) -> Handle:
        """Return attributes of a primitive whose source `arg` has a factor, given at run."""
        attributes = self._attributes()
        self.library.call("primitive_attr_set_scales_mask", attributes.handle, arg, 0)
        return attributes

    def rectifying(self, slope: float) -> Handle:
        """Return attributes of a primitive that applies a (leaky) ReLU to its result."""
        return self.summing([], slope)

    def summing(self, summands: Sequence[Desc], slope: float | None) -> Handle:
        """Return attributes of a primitive that adds further sources to its result, then applies a ReLU if `slope`."""
        post_ops = Handle(self.library, "post_ops", self.library.create("post_ops_create"))
        for desc in summands:
            self.library.call("post_ops_append_binary", post_ops.handle, lib.BINARY_ADD, desc.handle)
        if slope is not None:
            self.library.call("post_ops_append_eltwise", post_ops.handle, lib.ELTWISE_RELU, slope, 0.0)
        return self._attributes(post_ops.handle)

    def gemm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray, add: bool = False) -> None:
        """Write a b into `out`, or add it. Each of a and b may be a transposed view; `out` is in C order."""
        Sgemm(self, a, b, out).run(add)

    # Descriptors.

    def any(self, shape: Sequence[int], kind: int = lib.F32) -> Desc:
        """Return a descriptor whose layout a primitive may choose."""
        arguments = len(shape), lib.dims(shape), kind, lib.TAG_ANY
        return Desc(self.library, self.library.create("memory_desc_create_with_tag", *arguments), shape)

    def blocked(self, shape: Sequence[int], kind: int = lib.F32) -> list[Desc]:
        """Return the descriptors of a blob whose channels lie in blocks, as convolutions like it."""
        tags = lib.TAGS_BLOCKED.get(len(shape), ())
        arguments = [(len(shape), lib.dims(shape), kind, tag) for tag in tags]
        return [Desc(self.library, self.library.create("memory_desc_create_with_tag", *a), shape) for a in arguments]

    def plain(self, shape: Sequence[int], kind: int = lib.F32) -> Desc:
        """Return the descriptor of an array in C order."""
        return self.strided(shape, _strides(shape), kind)

    def channels_last(self, shape: Sequence[int], kind: int = lib.F32) -> Desc:
        """Return the descriptor of a blob whose channels, axis 1, lie together for each pixel."""
        images, *pixels = _strides((shape[0], *shape[2:], shape[1]))[:-1]
        return self.strided(shape, [images, 1, *pixels], kind)

    def strided(self, shape: Sequence[int], strides: Sequence[int], kind: int = lib.F32) -> Desc:
        """Return the descriptor of an array with these strides, elements."""
        arguments = len(shape), lib.dims(shape), kind, lib.dims(strides)
        return Desc(self.library, self.library.create("memory_desc_create_with_strides", *arguments), shape)

    def retyped(self, desc: Desc, kind: int) -> Desc:
        """Return the same layout with another data type; C order for a layout that is none of the usual ones."""
        return desc if desc.kind == kind else self.like(desc, desc.shape, kind)

    def like(self, desc: Desc, shape: Sequence[int], kind: int) -> Desc:
        """Return the layout of `desc` for another shape or type; C order for a layout that is none of the usual ones.

        These are channels last and the blocked ones.
        """
        usual = zip(self._usual(desc.shape, desc.kind), self._usual(shape, kind), strict=True)
        return next((new for now, new in usual if now == desc), self.plain(shape, kind))

    def _usual(self, shape: Sequence[int], kind: int) -> list[Desc]:
        last = [self.channels_last(shape, kind)] if len(shape) > 2 else []
        return [*last, *self.blocked(shape, kind)]

    def part(self, desc: Desc, shape: Sequence[int], offsets: Sequence[int]) -> Desc:
        """Return the descriptor of a part of a memory. Raise NoFastForm where its layout has no such part."""
        try:
            given = desc.handle, lib.dims(shape), lib.dims(offsets)
            return Desc(self.library, self.library.create("memory_desc_create_submemory", *given), shape)
        except OnednnError as error:
            if error.status in (lib.INVALID_ARGUMENTS, lib.UNIMPLEMENTED):
                raise NoFastForm(f"a part of shape {tuple(shape)} at {tuple(offsets)} of {desc.shape}") from None
            raise

    # Primitives.

    def describe(self, operation: str, *arguments: Any, shapes: Any = "") -> PrimitiveDesc:
        """Return what the library would run: `operation` as in dnnl_<operation>_primitive_desc_create.

        Raise NoFastForm where it has nothing, or its reference implementation alone, which is slower than numpy.
        """
        given = [a.handle if isinstance(a, Handle) else a for a in arguments]
        try:
            handle = self.library.create(f"{operation}_primitive_desc_create", *given, what=str(shapes))
        except OnednnError as error:
            if error.status == lib.UNIMPLEMENTED:
                raise NoFastForm(f"{operation} is not implemented for {shapes}") from None
            raise
        found = PrimitiveDesc(self.library, handle, operation, arguments)
        if found.implementation.startswith("ref"):
            raise NoFastForm(f"{operation} of {shapes} has the implementation '{found.implementation}' alone")
        return found

    def rectified(self, described: PrimitiveDesc, slope: float) -> PrimitiveDesc | None:
        """Return a description with a ReLU behind its operation, None where there is none with the same layouts."""
        try:
            found = self.describe(described.operation, *described.arguments[:-1], self.rectifying(slope))
        except NoFastForm:
            return None
        queries = lib.QUERY_SRC, lib.QUERY_WEIGHTS, lib.QUERY_DST
        return found if all(found.desc(query) == described.desc(query) for query in queries) else None

    def format_of(self, values: Values) -> str:
        if values.form is None:
            return super().format_of(values)
        return values.form.desc.format if isinstance(values.form, Memory) else FUSED

    def memory_of(self, values: Values) -> dict[int, int]:
        form = {address(values.form.buffer): values.form.desc.nbytes} if isinstance(values.form, Memory) else {}
        return super().memory_of(values) | form

    def buffers(self) -> list[np.ndarray]:
        """Return the memory that it keeps for temporary values."""
        return [*super().buffers(), *self.gradients.free, *([] if self._scratch is None else [self._scratch])]

    def scratchpad(self, desc: Desc) -> Memory:
        """Return a memory over the shared scratchpad, which grows to hold it."""
        nbytes = desc.nbytes
        if self._scratch is None or self._scratch.nbytes < nbytes:
            self._scratch = aligned_zeros(-(-nbytes // 4))
            for memory in self._scratchpads:
                memory.point(self._scratch)
        memory = Memory(self, desc, self._scratch)
        self._scratchpads.add(memory)
        return memory


@cache
def _warn_of_emulation() -> None:
    """Log once that bfloat16 is emulated."""
    log.warning("This CPU has no instructions for bf16: it will be slower than float32.")


def engine_of(layer: Layer) -> Onednn:
    """Return the engine of a layer that computes by oneDNN."""
    return cast(Onednn, layer.context.engine)


class Memory(Handle, Form):
    """Values in a layout, dnnl_memory_t: a form that blobs hold.

    It owns its buffer, or keeps alive the array that it was last pointed at. `array` is the buffer where the layout is
    plain, else None.
    """

    def __init__(self, engine: Onednn, desc: Desc, buffer: np.ndarray | None = None):
        self.engine, self.desc = engine, desc
        self.plain = bool(desc.shape) and desc == engine.plain(desc.shape)
        if buffer is None:
            buffer = aligned_zeros(-(-desc.nbytes // 4))
            buffer = buffer.reshape(desc.shape) if self.plain else buffer
        self.buffer = float32(buffer)
        handle = engine.library.create("memory_create", desc.handle, engine.handle, address(buffer))
        super().__init__(engine.library, "memory", handle)
        self._out: tuple[Memory, Primitive] | None = None

    def acquire(self) -> Memory:
        """Return this, ready to be written. Call before a primitive writes it."""
        return self

    def release(self) -> None:
        """Note that the values have been read. Only pooled memories give up their buffer."""

    @property
    def array(self) -> np.ndarray | None:
        return self.buffer if self.plain else None

    def point(self, array: np.ndarray) -> None:
        """Use the memory of `array` (float32) from now on; raise OnednnError for another type."""
        if array is not self.buffer:
            self.buffer = float32(array)
            self.library.call("memory_set_data_handle", self.handle, address(array))

    def store(self, array: np.ndarray) -> None:
        """Copy the values into `array`, in C order."""
        if self._out is None:
            target = Memory(self.engine, self.engine.plain(self.desc.shape), array)
            self._out = target, reorder(self, target)
        self._out[0].point(array)
        self._out[1].run()


class Primitive(Handle):
    """A primitive, dnnl_primitive_t, with its arguments bound; `run` is one call of the library."""

    def __init__(self, engine: Onednn, desc: PrimitiveDesc, memories: dict[int, Memory] | None = None):
        super().__init__(engine.library, "primitive", engine.library.create("primitive_create", desc.handle))
        self.engine, self.desc = engine, desc
        self.memories = dict(memories or {})
        pad = desc.desc(lib.QUERY_SCRATCHPAD)
        if pad.nbytes:
            self.memories[lib.ARG_SCRATCHPAD] = engine.scratchpad(pad)
        self._execute = engine.library.dll.dnnl_primitive_execute
        self._pack()

    def _pack(self) -> None:
        """Prepare the call."""
        pairs = [lib.Argument(arg, memory.handle) for arg, memory in self.memories.items()]
        self._call = self.handle, self.engine.stream, len(pairs), (lib.Argument * len(pairs))(*pairs)

    def bind(self, arg: int, memory: Memory) -> None:
        """Set argument `arg`, one of the library's ARG_ numbers, for all runs from now on."""
        if self.memories.get(arg) is not memory:
            self.memories[arg] = memory
            self._pack()

    def clear_scratchpad(self) -> None:
        """Write zeros into the part of the scratchpad that this primitive uses."""
        if pad := self.memories.get(lib.ARG_SCRATCHPAD):
            pad.buffer[: -(-pad.desc.nbytes // 4)] = 0.0

    def run(self, given: Mapping[int, Memory] = MappingProxyType({})) -> None:
        """Set the `given` arguments, as `bind` does, and compute. Memories that stay are a call that is prepared.

        Raise OnednnError with the library's status where it fails.
        """
        for arg, memory in given.items():
            if self.memories.get(arg) is not memory:
                self.bind(arg, memory)
        start = time.perf_counter()
        if status := self._execute(*self._call):
            self.library.check(status, "primitive_execute", f"{self.desc.operation} {self.desc.implementation}")
        if self.engine.watcher:
            self.engine.watcher(self._seen(time.perf_counter() - start))

    def _seen(self, seconds: float) -> KernelRun:
        """Return this run for the engine's watcher."""
        first, last = (next(a for a in given if a in self.memories) for given in (_READ, _WRITTEN))
        memories = self.memories[first], self.memories[last]
        read, written = (Tensor(address(memory.buffer), memory.desc.format) for memory in memories)
        moved = sum(m.desc.nbytes for arg, m in self.memories.items() if arg != lib.ARG_SCRATCHPAD)
        return KernelRun(self.desc.operation, seconds, read, written, moved)


def reorder(source: Memory, target: Memory, add: bool = False) -> Primitive:
    """Return the primitive that copies `source` into `target`, or adds it, across their layouts and data types."""
    engine = source.engine
    attributes = engine.adding() if add else engine.attributes
    given = source.desc.handle, engine.handle, target.desc.handle, engine.handle, attributes.handle
    handle = engine.library.create("reorder_primitive_desc_create", *given, what=f"shape {source.desc.shape}")
    desc = PrimitiveDesc(engine.library, handle, "reorder", given)
    return Primitive(engine, desc, {lib.ARG_SRC: source, lib.ARG_DST: target})


def _strides(shape: Sequence[int]) -> list[int]:
    """Return the strides of an array in C order, in elements."""
    return [prod(shape[i + 1 :]) for i in range(len(shape))]
