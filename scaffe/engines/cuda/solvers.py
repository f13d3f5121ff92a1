"""The solvers' updates, each one launch for all parameters that are to be updated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.engines.cuda.engine import THREADS, Engine
from scaffe.packed import PackedParameters
from scaffe.proto import SolverParameter
from scaffe.solvers import adadelta, adagrad, adam, lars, nesterov, register, rmsprop, sgd
from scaffe.solvers.rule import Rule

BLOCKS = 256  # for a parameter, at most
NONE = np.uint64(0)  # an array that a kernel is not given


class Fused(Rule):
    """A rule whose whole update is one kernel; the numbers are the reference rule's, bit for bit.

    Where each parameter lies, and its multipliers, stand in tables on the device, made once.
    """

    def __init__(self, param: SolverParameter, packed: PackedParameters, engine: Engine):
        super().__init__(param, packed)
        self.engine = engine
        self._data, self._diff = packed.data, packed.diff
        xp, parameters = engine.gpu.xp, packed.parameters

        def table(values: Sequence[float], dtype: type) -> Any:
            return xp.asarray(np.array(values, dtype))

        self._starts = table([part.start for part in packed.slices], np.int64)
        self._stops = table([part.stop for part in packed.slices], np.int64)
        self._rates = table([p.rate for p in parameters], np.float64)
        self._decays = table([param.weight_decay * p.decay for p in parameters], np.float64)
        self._ratios: Any = NONE
        self._squares: Any = None
        self._factor: Any = None
        self._wanted: dict[tuple[int, ...], Any] = {}

    def clip(self) -> None:
        """Do so in three launches; the norm stays on the device."""
        if self.param.clip_gradients < 0:
            return
        diff, xp = self.packed.diff, self.engine.gpu.xp
        if self._squares is None:
            parts = max(1, min(BLOCKS, diff.size // (8 * THREADS)))
            self._squares, self._factor = xp.zeros(parts, np.float64), xp.zeros((), np.float32)
        limit, parts = np.float64(self.param.clip_gradients), self._squares.size
        self.engine.launch("solvers", "squares", (parts,), np.int64(diff.size), diff, self._squares)
        self.engine.launch("solvers", "clip_factor", (1,), self._squares, parts, limit, self._factor)
        self.engine.over("solvers", "clip", diff.size, diff, self._factor)

    def update(self, indices: Sequence[int], rate: float, iteration: int) -> None:
        indices = tuple(indices)
        if not indices:
            return
        for i in indices:  # and no other: another thread may be computing the gradients of these
            self.packed.settle(i)
            self.packed.parameters[i].blob.values.settle()
        wanted = self._wanted.get(indices)
        if wanted is None:
            wanted = self._wanted[indices] = self.engine.gpu.xp.asarray(np.array(indices, np.int32))
        self.prepare(wanted)
        self.launch(wanted, self._blocks(indices), rate, iteration)

    def prepare(self, wanted: Any) -> None:
        """Compute what the update of these parameters needs to know of them."""

    def launch(self, wanted: Any, blocks: int, rate: float, iteration: int) -> None:
        p = self.param
        history = [*self.history, NONE][:2]
        tables = self._starts, self._stops, self._rates, self._decays, self._ratios, wanted
        momentum2 = p.rms_decay if self.kind == "RMSProp" else p.momentum2
        numbers = np.float64(rate), np.float64(self.scale(iteration)), *self._floats(p.momentum, momentum2, p.delta)
        arguments = self._data, self._diff, *history, *tables, *numbers, int(p.regularization_type == "L1")
        self.engine.launch("solvers", f"update_{self.kernel}", (blocks, wanted.size), *arguments)

    @property
    def kernel(self) -> str:
        """The name of the kernel's rule."""
        return self.kind

    def scale(self, iteration: int) -> float:
        """Return what the rates are multiplied by in this iteration."""
        return 1.0

    def _floats(self, *values: float) -> list[np.float32]:
        return [np.float32(value) for value in (1 / self.param.iter_size, *values)]

    def _blocks(self, indices: tuple[int, ...]) -> int:
        most = max(self.packed.slices[i].stop - self.packed.slices[i].start for i in indices)
        return max(1, min(BLOCKS, -(-most // THREADS)))


class FusedSGD(Fused, sgd.SGD):
    pass


class FusedNesterov(Fused, nesterov.Nesterov):
    pass


class FusedAdaGrad(Fused, adagrad.AdaGrad):
    pass


class FusedRMSProp(Fused, rmsprop.RMSProp):
    pass


class FusedAdaDelta(Fused, adadelta.AdaDelta):
    pass


class FusedAdam(Fused, adam.Adam):
    def scale(self, iteration: int) -> float:
        return self._correction(iteration + 1)


class FusedLARS(Fused, lars.LARS):
    """LARS: a launch for the norms, which stay on the device, and the update of SGD."""

    kernel = "SGD"

    def prepare(self, wanted: Any) -> None:
        if self._ratios is NONE:
            self._ratios = self.engine.gpu.xp.zeros(len(self.packed.parameters), np.float64)
        tables = self._starts, self._stops, self._decays, wanted, self._ratios
        numbers = *self._floats(), np.float64(self.param.lars_trust)
        arguments = self._data, self._diff, *tables, *numbers
        self.engine.launch("solvers", "lars_ratios", (wanted.size,), *arguments)


for _rule in (FusedSGD, FusedNesterov, FusedAdaGrad, FusedRMSProp, FusedAdaDelta, FusedAdam, FusedLARS):
    register(_rule, engine="cuda")  # type: ignore[type-abstract]
