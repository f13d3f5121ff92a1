"""The choices for a convolution: the layouts of its bottom and top, and of the gradient of its weights."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

from scaffe.blob import Blob, Shape
from scaffe.context import TRAIN
from scaffe.devices.choices import seconds
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.column_product import outweighs, takes_columns
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.picked_pixels import over_picked
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, engine_of, reorder
from scaffe.errors import PlanError
from scaffe.layers.convolution import Convolution

BLOCKED, CHANNELS_LAST, PLAIN = "blocked", "channels last", "plain"  # the library's own choice; N x ... x C; im2col
LAYOUTS = {BLOCKED: Onednn.any, CHANNELS_LAST: Onednn.channels_last, PLAIN: Onednn.plain}
GRADIENT = ", weight gradient "  # in a choice's name, before the layout of the backward pass by weights
# Products with padding over those without: above this the blocked layout costs more than it gains. The second is for a
# bottom or a top that alone is padded: the other then has neighbours in blocks, to which it would be reordered.
PADDING, OF_ONE_ALONE = 1.3, 2.0


class PassDescs(NamedTuple):
    """Descriptions of the primitives of the three passes: forward, backward by data, backward by weights."""

    forward: PrimitiveDesc
    data: PrimitiveDesc
    weights: PrimitiveDesc


class ConvolutionLayouts:
    """The layouts that oneDNN offers for one bottom of shape `src` and its top of shape `dst`.

    `weights_shape` is oneDNN's: (group x) F / group x C / group x size... The products are of the engine's data type;
    the top, and the bottom's gradient, are of the type that the blob has. In float32 the bottom of filters of one pixel
    with strides is the pixels that they meet, and `window` the one over these.
    """

    def __init__(self, layer: Convolution, bottom: Blob, top: Blob):
        self.layer, self.src, self.dst = layer, bottom.shape, top.shape
        self.engine = engine_of(layer)
        self.bottom_kind, self.top_kind = self.engine.kind_of(bottom), self.engine.kind_of(top)
        self.window = layer.window
        if self.engine.kind == lib.F32 and layer.group == 1:
            self.window = over_picked(layer.window)
            self.src = (*self.src[:2], *self.window.size)
        groups = (layer.group,) if layer.group > 1 else ()
        self.weights_shape = (
            *groups,
            layer.outputs // layer.group,
            layer.channels // layer.group,
            *layer.window.kernel,
        )

    @property
    def work(self) -> str:
        """The name of the work, by its shapes without the batch, of which ranks may have different shares."""
        window = self.window
        shapes = self.src[1:], self.weights_shape, window.stride, window.pad, window.dilation
        sizes = [_times(shape) for shape in shapes]
        name = "{} {} by {}, stride {}, pad {}, dilation {}".format(self.layer.type, *sizes)
        return name + self.engine.suffix

    def take(self, choice: str) -> PassDescs:
        """Return the primitives of a choice. Raise NoFastForm where one is not fast, PlanError for no such choice."""
        main, _, gradient = choice.partition(GRADIENT)
        if main not in LAYOUTS or (gradient and gradient not in LAYOUTS):
            known = f"one of {', '.join(LAYOUTS)}, or two of them around '{GRADIENT.strip()}'"
            raise PlanError(f"the plan has '{self.work}: {choice}'; expected {known}")
        described = self.describe(main)
        return described._replace(weights=self.describe(gradient).weights) if gradient else described

    def fixed(self) -> str:
        """Return the choice made without timing: the library's own layouts, unless these are mostly padding.

        Blocks of 16 channels pad 20 channels to 32; the layout with channels last pads none. Without AVX-512 the
        gradient of the weights alone may pad, 1 channel to 8; where blocks pad the top too, all passes save more by
        channels last than this gradient's reorder costs. A gradient that outweighs bottom and top is passed over for
        each image in blocks, with channels last for all images at once.
        """
        blocked, choice = self.describe(BLOCKED), BLOCKED
        gradient_pads = self._pads(blocked.weights, lib.QUERY_DIFF_DST)
        top_pads = self._padding(blocked.forward, lib.QUERY_DST, self.dst) > 1
        if self._pads(blocked.forward, lib.QUERY_DST) or (gradient_pads and top_pads):
            choice = CHANNELS_LAST
        elif gradient_pads or self._outweighs():
            choice = f"{BLOCKED}{GRADIENT}{CHANNELS_LAST}"
        if choice != BLOCKED and self.layer.group == 1:
            with suppress(NoFastForm):
                self.describe(CHANNELS_LAST)
                return choice
        return BLOCKED

    def _pads(self, described: PrimitiveDesc, query: int) -> bool:
        """Return whether too many products of a pass, of whose top `query` asks, are with padding."""
        of_bottom = self._padding(described, lib.QUERY_SRC, self.src)
        of_top = self._padding(described, query, self.dst)
        return of_bottom * of_top > (PADDING if of_bottom > 1 and of_top > 1 else OF_ONE_ALONE)

    def _padding(self, described: PrimitiveDesc, query: int, shape: Shape) -> float:
        """Return the bytes of an argument of this shape over those without padding."""
        desc = described.desc(query, shape)
        return desc.nbytes / self.engine.plain(shape, desc.kind).nbytes

    def _outweighs(self) -> bool:
        """Return whether the weights' gradient outweighs bottom and top, and channels last or columns are faster."""
        engine, is_pixel = self.engine, prod(self.window.kernel) == 1  # which has kernels of its own
        if is_pixel or engine.kind != lib.F32:
            return False
        is_faster = engine.library.isa & lib.ISA_AVX512 or takes_columns(engine, self.window)
        return bool(is_faster) and outweighs(self.src, self.dst, self.weights_shape)

    def describe(self, layout: str) -> PassDescs:
        """Return the primitives with bottom and top in that layout. Raise NoFastForm where one is not fast."""
        layer, engine, window, low = self.layer, self.engine, self.window, self.engine.kind
        ends = zip(window.size, window.extent, window.stride, window.pad, window.out, strict=True)
        end = [(out - 1) * s + extent - n - p for n, extent, s, p, out in ends]
        geometry = [lib.dims(v) for v in (window.stride, [d - 1 for d in window.dilation], window.pad, end)]
        made = LAYOUTS[layout]
        x, dx, w, dw = (made(engine, self.src, low), made(engine, self.src, self.bottom_kind),
                        engine.any(self.weights_shape, low), engine.any(self.weights_shape))  # fmt: skip
        y, dy = made(engine, self.dst, self.top_kind), made(engine, self.dst, low)
        b = engine.plain((layer.outputs,)) if layer.bias_term else None
        kind = lib.FORWARD_TRAINING if layer.context.phase == TRAIN else lib.FORWARD_INFERENCE

        def describe(name: str, *arguments: Any) -> PrimitiveDesc:
            given = engine.handle, *arguments, engine.attributes
            return engine.describe(f"convolution_{name}", *given, shapes=f"{self.src} by {self.weights_shape}")

        direct = lib.CONVOLUTION_DIRECT
        forward = describe("forward", kind, direct, x, w, b, y, *geometry)
        data = describe("backward_data", direct, dx, w, dy, *geometry, forward)
        weights = describe("backward_weights", direct, x, dw, b, dy, *geometry, forward)
        return PassDescs(forward, data, weights)

    def time(self, down: bool, learns: bool) -> dict[str, float]:
        """Return the seconds of a pass over the batch for each choice, the fixed one first.

        The time of another layout includes the reorders from and to neighbours in the fixed layout, and those between
        the two layouts of a choice. The plain layout is not timed: neighbours would lose their fast forms.
        """
        choice = self.fixed()
        fixed = choice.partition(GRADIENT)[0]
        layouts = {fixed: self.describe(fixed)}
        for layout in (BLOCKED, CHANNELS_LAST):
            with suppress(NoFastForm):
                layouts.setdefault(layout, self.describe(layout))
        main = self._best(layouts, [PassDescs.forward, PassDescs.data][: 1 + down])
        gradient = self._best(layouts, [PassDescs.weights][: int(learns)])
        found = {choice: 0.0}  # the fixed one first
        for a, whole in layouts.items():
            moved = main[a] + self._reorders(layouts[fixed], whole) * (1 + down)
            for b, other in layouts.items():
                found[a if a == b else f"{a}{GRADIENT}{b}"] = (
                    moved + gradient[b] + (self._reorders(whole, other) if learns else 0.0)
                )
        return found

    def _best(self, layouts: dict[str, PassDescs], passes: Iterable[Any]) -> dict[str, float]:
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
        """Return the seconds of one pass, over memories of its own."""
        engine, operation = self.engine, described.operation.removeprefix("convolution_")
        memories = {
            argument: _scratch(engine, described.desc(query, getattr(self, shape)))
            for argument, query, shape in _ARGUMENTS[operation]
        }
        bias = {"forward": lib.ARG_BIAS, "backward_weights": lib.ARG_DIFF_BIAS}.get(operation)
        if bias and self.layer.bias_term:
            memories[bias] = _scratch(engine, engine.plain((self.layer.outputs,)))
        return seconds(Primitive(engine, described, memories).run, best)

    def _reorders(self, one: PassDescs, other: PassDescs) -> float:
        """Return the seconds of the reorders of bottom and top between two layouts."""
        taken = 0.0
        for query, shape in ((lib.QUERY_SRC, self.src), (lib.QUERY_DST, self.dst)):
            source, target = one.forward.desc(query, shape), other.forward.desc(query, shape)
            if source != target:
                taken += seconds(reorder(_scratch(self.engine, source), _scratch(self.engine, target)).run)
        return taken


_ARGUMENTS = {  # of each pass: the argument, the query for its layout, the attribute with its shape
    "forward": (
        (lib.ARG_SRC, lib.QUERY_SRC, "src"),
        (lib.ARG_WEIGHTS, lib.QUERY_WEIGHTS, "weights_shape"),
        (lib.ARG_DST, lib.QUERY_DST, "dst"),
    ),
    "backward_data": (
        (lib.ARG_DIFF_SRC, lib.QUERY_DIFF_SRC, "src"),
        (lib.ARG_WEIGHTS, lib.QUERY_WEIGHTS, "weights_shape"),
        (lib.ARG_DIFF_DST, lib.QUERY_DIFF_DST, "dst"),
    ),
    "backward_weights": (
        (lib.ARG_SRC, lib.QUERY_SRC, "src"),
        (lib.ARG_DIFF_DST, lib.QUERY_DIFF_DST, "dst"),
        (lib.ARG_DIFF_WEIGHTS, lib.QUERY_DIFF_WEIGHTS, "weights_shape"),
    ),
}


def _scratch(engine: Onednn, desc: Desc) -> Memory:
    """Return a memory of written pages: pages of zeros never written map to one page, which stays in the cache."""
    memory = Memory(engine, desc)
    memory.buffer[...] = 0.5
    return memory


def _times(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))
