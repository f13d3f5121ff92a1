"""Graphs: what groups of layers launch, recorded once as CUDA graphs and then repeated by one call each.

Between layers that need the host, and between messages, stand groups of layers whose passes launch the same kernels
with the same arguments each time. A GPU repeats a recording of them without a step of Python per layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scaffe.blob import Blob, Values
from scaffe.devices.gpu import Gpu
from scaffe.engine import Group, LayerView, NetView
from scaffe.engines.cuda.launcher import Launcher
from scaffe.monitor.log import log

WARM_UP = 2  # passes before a recording: kernels get compiled, buffers made, ways chosen
MOST = 8  # recordings of a group, for as many places that its bottoms come to lie in
KNOWN = 1000  # states of groups that are counted: bottoms may lie elsewhere in each pass


class Recorder:
    """Record what a piece of work launches; temporary arrays of recordings have a pool of their own.

    `prepare` makes what libraries need on the stream, which they can't make while it records.
    """

    def __init__(self, gpu: Gpu, prepare: Callable[[], object]):
        self._cuda, self._prepare = gpu.xp.cuda, prepare
        self._stream = self._cuda.Stream(non_blocking=True)  # so that other threads' work is not recorded
        self._pool = self._cuda.MemoryPool()

    def record(self, work: Callable[[], object]) -> Any:
        """Return what `work` puts on the current stream, to be launched; nothing of it is done yet."""
        with self._cuda.using_allocator(self._pool.malloc), self._stream:
            self._prepare()
            self._stream.begin_capture()
            try:
                work()
            except BaseException:
                self._abandon()
                raise
            return self._stream.end_capture()

    def _abandon(self) -> None:
        """End a recording that failed, so that the stream can record again."""
        try:
            self._stream.end_capture()
        except Exception:  # CuPy's, which says again that it failed
            self._stream = self._cuda.Stream(non_blocking=True)


class Recording:
    """One pass of a group: what to launch, the values that it writes, and the attributes of its layers after it."""

    def __init__(self, graph: Any, written: Sequence[Values], layers: Sequence[LayerView]):
        self.graph, self.written = graph, [(values, values.deferred) for values in written]
        self.noted = [(layer, dict(vars(layer))) for layer in layers]  # such as arrays that the backward pass reads

    def repeat(self) -> None:
        """Launch it again."""
        self.graph.launch()
        for values, deferred in self.written:
            values.overwritten()
            if deferred:  # what a later layer computes
                values.defer(deferred)
        for layer, noted in self.noted:
            vars(layer).update(noted)


class Graphs:
    """The groups of a net's layers, and their recordings by what they depend on.

    A net that is placed anew is recorded anew. What can't be recorded is an error if the net `insists`; else it is
    logged, and computed layer by layer.
    """

    def __init__(self, engine: Launcher, net: NetView, insists: bool = False):
        self.engine, self.net, self.insists = engine, net, insists
        self._recorder = Recorder(engine.gpu, engine.products.prepare)
        self._groups: dict[frozenset[int], list[Group]] = {}
        self._recordings: dict[tuple[Any, ...], Recording] = {}
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._refused: set[tuple[Group, bool]] = set()
        self._forward: dict[Group, Recording | None] = {}  # what the last forward pass was
        self._placed = (-1, -1)  # the version of the memory that recordings speak of

    def groups(self, starts: Iterable[int] = ()) -> list[Group]:
        """Return the layers in groups, of which those of several layers can be recorded; new ones begin at `starts`."""
        cuts = frozenset(starts)
        if cuts not in self._groups:
            self._groups[cuts] = split([layer.capturable for layer in self.net.layers], cuts)
        return self._groups[cuts]

    def forward(self, group: Group) -> None:
        """Compute the tops of a group of several layers."""
        for i in group:
            self.net.layers[i].begin_pass()
        made = self._pass(group, False, ())
        self._forward[group] = made
        if made is not None:
            for i in group:
                if self.net.layers[i].views:  # no launch, but the bottom's place may be another one
                    self.net.layers[i].forward(self.net.bottoms[i], self.net.tops[i])

    def backward(self, group: Group) -> None:
        """Compute the gradients of such a group.

        Arrays that layers kept in a forward pass that was no repetition may lie elsewhere each time: then no recording
        serves.
        """
        if (before := self._forward.get(group)) is None:
            self._compute(group, True)
        else:
            self._pass(group, True, (id(before), *(values.is_zero for values in self._gradients(group))))

    def _pass(self, group: Group, backward: bool, state: tuple[Any, ...]) -> Recording | None:
        """Repeat the group's recording for its present state, or compute it; return the recording, or None."""
        key = group, backward, *state, *self._places(group)
        made = self._recordings.get(key)
        if made is None and self._is_due(group, backward, key):
            made = self._record(group, backward, key)
        if made is None:
            self._compute(group, backward)
        else:
            made.repeat()
        return made

    def _compute(self, group: Group, backward: bool) -> None:
        """Compute the layers one by one."""
        for i in reversed(group) if backward else group:
            (self.net.backward_layer if backward else self.net.forward_layer)(i)

    def _compute_to_record(self, group: Group, backward: bool) -> None:
        """Compute the layers; move what they wrote as plain arrays to its home, where a repetition leaves it."""
        self._compute(group, backward)
        for values in self._computed(group, backward):
            if not values.deferred:
                values.settle()

    def _is_due(self, group: Group, backward: bool, key: tuple[Any, ...]) -> bool:
        """Return whether it is time to record a group."""
        if len(self._seen) > KNOWN:
            self._seen.clear()
        self._seen[key] += 1
        few = sum(1 for known in self._recordings if known[:2] == key[:2]) < MOST
        return self._seen[key] > WARM_UP and few and (group, backward) not in self._refused

    def _record(self, group: Group, backward: bool, key: tuple[Any, ...]) -> Recording | None:
        """Return a recording of the group, None where it can't be made."""
        gradients = self._gradients(group)
        zeros = [values.is_zero for values in gradients]
        waiting = [values for values in self._read(group, backward) if values.deferred]
        engine = self.engine
        engine.recording = True
        try:
            graph = self._recorder.record(lambda: self._compute_to_record(group, backward))
        except Exception as error:  # CuPy's errors have no base of their own
            if self.insists:
                raise
            for values in (v for v, zero in zip(gradients, zeros, strict=True) if zero):
                values.clear()
            self._refuse(group, backward, error)
            return None
        finally:
            engine.recording = False
        done = [values for values, zero in zip(gradients, zeros, strict=True) if zero and not values.is_zero]
        done += [values for values in waiting if not values.deferred]
        layers = [] if backward else [self.net.layers[i] for i in group]
        made = self._recordings[key] = Recording(graph, [*done, *self._computed(group, backward)], layers)
        return made

    def _refuse(self, group: Group, backward: bool, error: Exception) -> None:
        names = [self.net.layers[i].name for i in (group[0], group[-1])]
        log.info("Layers %s to %s are computed one by one: %s", *names, " ".join(str(error).split())[:200])
        self._refused.add((group, backward))

    def _places(self, group: Group) -> tuple[Any, ...]:
        """Return where the group's blobs lie, once they hold what was written into copies on the host."""
        memory = self.engine.memory
        placed = memory.version, self.engine.scratch_version
        if placed != self._placed:
            self._placed = placed
            self._recordings.clear()
            self._seen.clear()
        found: list[Any] = []
        viewed = {id(top) for i in group if self.net.layers[i].views for top in self.net.tops[i]}
        for blob in (blob for i in group for blob in (*self.net.bottoms[i], *self.net.tops[i])):
            found += [_settled(blob.diff_values)]
            if memory.has(blob):
                found += [_settled(blob.values)]
            elif id(blob) not in viewed:  # whose place follows from their bottom's
                found += blob.shape, self.engine.gpu.place(blob.array)
        return tuple(found)

    def _computed(self, group: Group, backward: bool) -> list[Values]:
        """Return the values that the group's layers write, or the gradients that they write into their bottoms."""
        net = self.net
        if not backward:
            return [top.values for i in group if not net.layers[i].views for top in net.tops[i]]
        downs = ((blob, down) for i in group for blob, down in zip(net.bottoms[i], net.nodes[i].down, strict=True))
        return [blob.diff_values for blob, down in downs if down]

    def _read(self, group: Group, backward: bool) -> list[Values]:
        """Return the values of the group's bottoms, or the gradients of its tops."""
        if backward:
            return [top.diff_values for i in group for top in self.net.tops[i]]
        return [bottom.values for i in group for bottom in self.net.bottoms[i]]

    def _gradients(self, group: Group) -> list[Values]:
        """Return the gradients of the group's parameters."""
        blobs: list[Blob] = [blob for i in group for blob in self.net.layers[i].blobs]
        return [blob.diff_values for blob in blobs]


def _settled(values: Values) -> int:
    """Settle values; return 0. Leave deferred ones to the layers, and return the identity of what computes them."""
    if values.deferred:
        return id(values.deferred)
    values.settle()
    return 0


def split(capturable: Sequence[bool], starts: Iterable[int] = ()) -> list[Group]:
    """Return the numbers of layers in groups: each that can't be recorded alone, the others in the longest groups."""
    groups: list[Group] = []
    cuts = set(starts)
    for i, can in enumerate(capturable):
        if groups and can and capturable[i - 1] and i not in cuts:
            groups[-1] += (i,)
        else:
            groups.append((i,))
    return groups
