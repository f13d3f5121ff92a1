"""The ways to compute a convolution: in which layout its bottom, its top and the gradient of its weights are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from scaffe.choices import seconds
from scaffe.context import TRAIN
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import (
    Desc,
    Engine,
    Memory,
    NoFastForm,
    Primitive,
    PrimitiveDesc,
    engine_of,
    reorder,
)
from scaffe.errors import PlanError
from scaffe.layers.convolution import Convolution

Shape = tuple[int, ...]

BLOCKED, CHANNELS_LAST, PLAIN = "blocked", "channels last", "plain"  # the library's own; and im2col + GEMM
LAYOUTS = {BLOCKED: Engine.any, CHANNELS_LAST: Engine.channels_last, PLAIN: Engine.plain}
GRADIENT = ", weight gradient "  # between two layouts, where that of the weights has its own
PADDING = 2  # times the products that matter, from which on the padded channels cost more than the layout gains


class Described(NamedTuple):
    """What the library runs for the three passes."""

    forward: PrimitiveDesc
    data: PrimitiveDesc
    weights: PrimitiveDesc


class Ways:
    """Describe and time a convolution's ways for one bottom and its top."""

    def __init__(self, layer: Convolution, src: Shape, dst: Shape):
        self.layer, self.engine, self.src, self.dst = layer, engine_of(layer), src, dst
        groups = (layer.group,) if layer.group > 1 else ()
        self.kernel = (*groups, layer.outputs // layer.group, layer.channels // layer.group, *layer.window.kernel)

    @property
    def work(self) -> str:
        """Name the work by its shapes, whatever the batch: ranks may have different shares of it."""
        window = self.layer.window
        sizes = [_times(shape) for shape in (self.src[1:], self.kernel, window.stride, window.pad, window.dilation)]
        name = "{} {} by {}, stride {}, pad {}, dilation {}".format(self.layer.type, *sizes)
        return name + self.engine.suffix

    def take(self, way: str) -> Described:
        """Return the descriptions of a way. Raise NoFastForm, or PlanError for a way that there is not."""
        main, _, gradient = way.partition(GRADIENT)
        if main not in LAYOUTS or (gradient and gradient not in LAYOUTS):
            known = f"one of {', '.join(LAYOUTS)}, or two of them around '{GRADIENT.strip()}'"
            raise PlanError(f"the plan has '{self.work}: {way}'; expected {known}")
        described = self.describe(main)
        return described._replace(weights=self.describe(gradient).weights) if gradient else described

    def fixed(self) -> str:
        """Return the way that is taken without timing: the library's own layouts, unless these are mostly padding.

        Blocks of 16 channels turn 20 into 32; with channels last nothing is padded.
        """
        engine, on_forward = self.engine, self.describe(BLOCKED).forward
        x, y = on_forward.desc(lib.QUERY_SRC, self.src), on_forward.desc(lib.QUERY_DST, self.dst)
        plain = engine.plain(self.src, engine.kind).nbytes * engine.plain(self.dst).nbytes
        if self.layer.group == 1 and x.nbytes * y.nbytes > PADDING * plain:
            with suppress(NoFastForm):
                self.describe(CHANNELS_LAST)
                return CHANNELS_LAST
        return BLOCKED

    def describe(self, layout: str) -> Described:
        """Return the descriptions with bottom and top in that layout. Raise NoFastForm where one is not fast."""
        layer, engine, window, low = self.layer, self.engine, self.layer.window, self.engine.kind
        ends = zip(window.size, window.extent, window.stride, window.pad, window.out, strict=True)
        end = [(out - 1) * s + extent - n - p for n, extent, s, p, out in ends]
        geometry = [lib.dims(v) for v in (window.stride, [d - 1 for d in window.dilation], window.pad, end)]
        made = LAYOUTS[layout]
        x, dx, w, dw = (made(engine, self.src, low), made(engine, self.src),
                        engine.any(self.kernel, low), engine.any(self.kernel))  # fmt: skip
        y, dy = made(engine, self.dst), made(engine, self.dst, low)
        b = engine.plain((layer.outputs,)) if layer.bias_term else None
        kind = lib.FORWARD_TRAINING if layer.context.phase == TRAIN else lib.FORWARD_INFERENCE

        def describe(way: str, *arguments: Any) -> PrimitiveDesc:
            given = engine.handle, *arguments, engine.attributes
            return engine.describe(f"convolution_{way}", *given, shapes=f"{self.src} by {self.kernel}")

        direct = lib.CONVOLUTION_DIRECT
        forward = describe("forward", kind, direct, x, w, b, y, *geometry)
        data = describe("backward_data", direct, dx, w, dy, *geometry, forward)
        weights = describe("backward_weights", direct, x, dw, b, dy, *geometry, forward)
        return Described(forward, data, weights)

    def time(self, down: bool, learns: bool) -> dict[str, float]:
        """Return the seconds of a pass over the batch in each way there is, the fixed one first.

        A layout other than the fixed one is charged for the reorders between it and neighbours that have the fixed one,
        and for those between its own two. The plain one is not tried: it would cost the layers around their fast forms.
        """
        fixed = self.fixed()
        layouts = {fixed: self.describe(fixed)}
        for layout in (BLOCKED, CHANNELS_LAST):
            with suppress(NoFastForm):
                layouts.setdefault(layout, self.describe(layout))
        main = self._best(layouts, [Described.forward, Described.data][: 1 + down])
        gradient = self._best(layouts, [Described.weights][: int(learns)])
        found = {}
        for a, whole in layouts.items():
            moved = main[a] + self._reorders(layouts[fixed], whole) * (1 + down)
            for b, other in layouts.items():
                way = a if a == b else f"{a}{GRADIENT}{b}"
                found[way] = moved + gradient[b] + (self._reorders(whole, other) if learns else 0.0)
        return found

    def _best(self, layouts: dict[str, Described], passes: Iterable[Any]) -> dict[str, float]:
        """Return the seconds that those passes take together in each layout."""
        total = dict.fromkeys(layouts, 0.0)
        for one in passes:
            best = float("inf")
            for layout, described in layouts.items():
                taken = self._seconds(one.__get__(described), best)
                best = min(best, taken)
                total[layout] += taken
        return total

    def _seconds(self, described: PrimitiveDesc, best: float) -> float:
        engine, operation = self.engine, described.operation.removeprefix("convolution_")
        memories = {
            argument: _scratch(engine, described.desc(query, getattr(self, shape)))
            for argument, query, shape in _ARGUMENTS[operation]
        }
        bias = {"forward": lib.ARG_BIAS, "backward_weights": lib.ARG_DIFF_BIAS}.get(operation)
        if bias and self.layer.bias_term:
            memories[bias] = _scratch(engine, engine.plain((self.layer.outputs,)))
        return seconds(Primitive(engine, described, memories).run, best)

    def _reorders(self, one: Described, other: Described) -> float:
        """Return the seconds of the reorders of bottom and top between two layouts."""
        taken = 0.0
        for query, shape in ((lib.QUERY_SRC, self.src), (lib.QUERY_DST, self.dst)):
            source, target = one.forward.desc(query, shape), other.forward.desc(query, shape)
            if source != target:
                taken += seconds(reorder(_scratch(self.engine, source), _scratch(self.engine, target)).run)
        return taken


_ARGUMENTS = {
    "forward": ((lib.ARG_SRC, lib.QUERY_SRC, "src"), (lib.ARG_WEIGHTS, lib.QUERY_WEIGHTS, "kernel"),
                (lib.ARG_DST, lib.QUERY_DST, "dst")),
    "backward_data": ((lib.ARG_DIFF_SRC, lib.QUERY_DIFF_SRC, "src"), (lib.ARG_WEIGHTS, lib.QUERY_WEIGHTS, "kernel"),
                      (lib.ARG_DIFF_DST, lib.QUERY_DIFF_DST, "dst")),
    "backward_weights": ((lib.ARG_SRC, lib.QUERY_SRC, "src"), (lib.ARG_DIFF_DST, lib.QUERY_DIFF_DST, "dst"),
                         (lib.ARG_DIFF_WEIGHTS, lib.QUERY_DIFF_WEIGHTS, "kernel")),
}  # fmt: skip


def _scratch(engine: Engine, desc: Desc) -> Memory:
    """Return a memory whose pages are there: zeros that nobody has written would all be one page in the cache."""
    memory = Memory(engine, desc)
    memory.buffer[...] = 0.5
    return memory


def _times(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))
