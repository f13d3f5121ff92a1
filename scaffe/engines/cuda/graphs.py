"""Graphs: what runs of layers launch, recorded once and from then on repeated by one call each.

Between layers that need the host, and between messages, lie runs of layers whose passes launch the same kernels with
the same arguments each time. A GPU repeats a recording of them without a step of Python per layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from scaffe.blob import Blob, Values
from scaffe.layers.layer import Layer
from scaffe.monitor.log import log

if TYPE_CHECKING:
    from scaffe.devices.gpu import Gpu
    from scaffe.net import Net

WARM_UP = 2  # passes before a recording: kernels get compiled, buffers made, ways chosen
MOST = 8  # recordings of a run, for as many places that its bottoms come to lie in
KNOWN = 1000  # states of runs that are counted: bottoms may lie elsewhere in each pass
Run = tuple[int, ...]  # numbers of layers, rising


class Recorder:
    """Records what a piece of work launches; temporary arrays of recordings have a pool of their own."""

    def __init__(self, gpu: Gpu):
        self._cuda = gpu.xp.cuda
        self._stream = self._cuda.Stream(non_blocking=True)  # so that other threads' work is not recorded
        self._pool = self._cuda.MemoryPool()

    def record(self, work: Callable[[], object]) -> Any:
        """Return what `work` puts on the current stream, to be launched; nothing of it is done yet."""
        with self._cuda.using_allocator(self._pool.malloc), self._stream:
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
    """One pass of a run: what to launch, the values that it writes, and what its layers had noted after it."""

    def __init__(self, graph: Any, written: Sequence[Values], layers: Sequence[Layer]):
        self.graph, self.written = graph, written
        self.noted = [(layer, dict(vars(layer))) for layer in layers]  # among it arrays that the backward pass reads

    def repeat(self) -> None:
        """Do it again."""
        self.graph.launch()
        for values in self.written:
            values.overwritten()
        for layer, noted in self.noted:
            vars(layer).update(noted)


class Graphs:
    """The runs of a net, and their recordings by what they depend on.

    A net that is placed anew is recorded anew. `insists` makes an error of what can't be recorded; else it is logged,
    and computed layer by layer.
    """

    def __init__(self, net: Net, insists: bool = False):
        self.net, self.insists = net, insists
        self._recorder = net.context.gpu.recorder()  # type: ignore[union-attr]
        self._runs: dict[frozenset[int], list[Run]] = {}
        self._recordings: dict[tuple, Recording] = {}
        self._seen: Counter[tuple] = Counter()
        self._refused: set[tuple[Run, bool]] = set()
        self._forward: dict[Run, Recording | None] = {}  # what the last forward pass was
        self._placed = (-1, -1)  # the version of the memory that recordings speak of

    def runs(self, starts: Iterable[int] = ()) -> list[Run]:
        """Return the layers in runs, those of one in which a recording may be made; new ones begin at `starts`."""
        cuts = frozenset(starts)
        if cuts not in self._runs:
            self._runs[cuts] = split([layer.capturable for layer in self.net.layers], cuts)
        return self._runs[cuts]

    def forward(self, run: Run) -> None:
        """Run these layers forward."""
        for i in run:
            self.net.layers[i].begin_pass()
        made = self._run(run, False, ())
        self._forward[run] = made
        if made is not None:
            for i in run:
                if self.net.layers[i].views:  # no launch, but the bottom's place may be another one
                    self.net.layers[i].forward(self.net.bottoms[i], self.net.tops[i])

    def backward(self, run: Run) -> None:
        """Run these layers backward; what layers noted in a pass that was no repetition may lie elsewhere each time."""
        if (before := self._forward.get(run)) is None:
            self._compute(run, True)
        else:
            self._run(run, True, (id(before), *(values.is_zero for values in self._gradients(run))))

    def _run(self, run: Run, backward: bool, state: tuple) -> Recording | None:
        """Repeat the run's recording if there is one for the state that it is in; return it, or None."""
        key = run, backward, *state, *self._places(run)
        made = self._recordings.get(key)
        if made is None and self._is_due(run, backward, key):
            made = self._record(run, backward, key)
        if made is None:
            self._compute(run, backward)
        else:
            made.repeat()
        return made

    def _compute(self, run: Run, backward: bool) -> None:
        """Run these layers one by one."""
        for i in reversed(run) if backward else run:
            (self.net.backward_layer if backward else self.net.forward_layer)(i)

    def _is_due(self, run: Run, backward: bool, key: tuple) -> bool:
        """Say whether it is time to record a run."""
        if len(self._seen) > KNOWN:
            self._seen.clear()
        self._seen[key] += 1
        few = sum(1 for known in self._recordings if known[:2] == key[:2]) < MOST
        return self._seen[key] > WARM_UP and few and (run, backward) not in self._refused

    def _record(self, run: Run, backward: bool, key: tuple) -> Recording | None:
        """Return a recording of the run, None where it can't be made."""
        gradients = self._gradients(run)
        zeros = [values.is_zero for values in gradients]
        engine = self.net.context.engine
        engine.recording = True
        try:
            graph = self._recorder.record(lambda: self._compute(run, backward))
        except Exception as error:  # CuPy's errors have no base of their own
            if self.insists:
                raise
            for values in (v for v, zero in zip(gradients, zeros, strict=True) if zero):
                values.clear()
            self._refuse(run, backward, error)
            return None
        finally:
            engine.recording = False
        done = [values for values, zero in zip(gradients, zeros, strict=True) if zero and not values.is_zero]
        layers = [] if backward else [self.net.layers[i] for i in run]
        made = self._recordings[key] = Recording(graph, [*done, *self._computed(run, backward)], layers)
        return made

    def _refuse(self, run: Run, backward: bool, error: Exception) -> None:
        names = [self.net.layers[i].name for i in (run[0], run[-1])]
        log.info("Layers %s to %s are computed one by one: %s", *names, " ".join(str(error).split())[:200])
        self._refused.add((run, backward))

    def _places(self, run: Run) -> tuple:
        """Return where the run's blobs lie, and have what was written into copies on the host be there."""
        memory = self.net.memory
        assert memory is not None
        placed = memory.version, self.net.context.engine.version
        if placed != self._placed:
            self._placed = placed
            self._recordings.clear()
            self._seen.clear()
        found: list[Any] = []
        viewed = {id(top) for i in run if self.net.layers[i].views for top in self.net.tops[i]}
        for blob in (blob for i in run for blob in (*self.net.bottoms[i], *self.net.tops[i])):
            blob.diff_values.settle()
            if memory.has(blob):
                blob.values.settle()
            elif id(blob) not in viewed:  # whose place follows from their bottom's
                found += blob.shape, self.net.context.gpu.place(blob.array)  # type: ignore[union-attr]
        return tuple(found)

    def _computed(self, run: Run, backward: bool) -> list[Values]:
        """Return the values that the run's layers write, or the gradients that they write into their bottoms."""
        net = self.net
        if not backward:
            return [top.values for i in run if not net.layers[i].views for top in net.tops[i]]
        downs = ((blob, down) for i in run for blob, down in zip(net.bottoms[i], net.nodes[i].down, strict=True))
        return [blob.diff_values for blob, down in downs if down]

    def _gradients(self, run: Run) -> list[Values]:
        """Return the gradients of the run's parameters."""
        blobs: list[Blob] = [blob for i in run for blob in self.net.layers[i].blobs]
        return [blob.diff_values for blob in blobs]


def split(capturable: Sequence[bool], starts: Iterable[int] = ()) -> list[Run]:
    """Return the numbers of layers in runs: those that can't be recorded alone, the others as long as may be."""
    runs: list[Run] = []
    cuts = set(starts)
    for i, can in enumerate(capturable):
        if runs and can and capturable[i - 1] and i not in cuts:
            runs[-1] += (i,)
        else:
            runs.append((i,))
    return runs
