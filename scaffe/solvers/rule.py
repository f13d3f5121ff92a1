"""Rule: how a gradient becomes an update, the part of a solver that each type has of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import ScaffeError
from scaffe.packed import PackedParameters
from scaffe.proto import SolverParameter

REGULARIZATIONS = ("L2", "L1")


class Rule:
    """Apply Caffe's update to the packed parameters: clip, normalise, regularise, step.

    Subclasses set `slots`, the number of history values per parameter, and implement `step`. `history[k]` is
    a flat array of the parameters' layout. Nobody but the rank that holds complete sums calls `update`.
    """

    kind = ""
    slots = 1

    def __init__(self, param: SolverParameter, packed: PackedParameters):
        if param.regularization_type not in REGULARIZATIONS:
            raise ScaffeError(
                f"regularization_type '{param.regularization_type}' is unknown; known: {' '.join(REGULARIZATIONS)}"
            )
        self.param, self.packed = param, packed
        self.history = [np.zeros_like(packed.data) for _ in range(self.slots)]
        self._scratch = np.empty_like(packed.data)

    def clip(self) -> float:
        """Scale all gradients so that their joint L2 norm is at most clip_gradients; return the norm before.

        Needs the sums of all layers. Comes before the division by iter_size, as in Caffe.
        """
        limit = self.param.clip_gradients
        if limit < 0:
            return 0.0
        norm = float(np.sqrt(np.dot(self.packed.diff, self.packed.diff)))
        if norm > limit:
            self.packed.diff *= np.float32(limit / norm)
        return norm

    def update(self, indices: Sequence[int], rate: float, iteration: int) -> None:
        """Turn the gradients of those parameters into updates and subtract them."""
        for i in indices:
            data, diff = self.packed.data[self.packed.slices[i]], self.packed.diff[self.packed.slices[i]]
            parameter = self.packed.parameters[i]
            self._normalise(diff)
            self._regularise(data, diff, parameter.decay, self._scratch[self.packed.slices[i]])
            self.step(i, diff, rate * parameter.rate, iteration)
            data -= diff

    def step(self, i: int, diff: np.ndarray, rate: float, iteration: int) -> None:
        """Replace a parameter's gradient by what is to be subtracted from its values."""
        raise NotImplementedError

    def _normalise(self, diff: np.ndarray) -> None:
        if self.param.iter_size > 1:
            diff *= np.float32(1 / self.param.iter_size)

    def _regularise(self, data: np.ndarray, diff: np.ndarray, mult: float, scratch: np.ndarray) -> None:
        decay = np.float32(self.param.weight_decay * mult)
        if not decay:
            return
        if self.param.regularization_type == "L1":
            np.sign(data, out=scratch)
            scratch *= decay
        else:
            np.multiply(data, decay, out=scratch)
        diff += scratch
