"""A gradient that is not finite, made in one layer at one iteration, whatever computes."""

from __future__ import annotations

from math import nan

from scaffe.training.solver import Solver


def poison(solver: Solver, layer: str, iteration: int, value: float = nan) -> None:
    """Let the last element of the gradient of a layer's first parameter be `value` at that iteration."""
    poisoned = solver.net.layer_dict[layer]
    backward = poisoned.backward

    def backward_then_poison(*given) -> None:
        backward(*given)
        if solver.iter == iteration:
            poisoned.blobs[0].diff.reshape(-1)[-1] = value

    poisoned.backward = backward_then_poison  # type: ignore[method-assign]
