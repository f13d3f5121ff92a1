"""Word-LM, ParaX's word model, as passes of the simulation: each step of its LSTMs is a product and the gates.

It is the whole net: embedding, two layers of an LSTM, decoder, softmax. parax-6 has the two layers alone, which the
paper calls LSTM.

As MXNet's example has it: a layer multiplies the inputs of all steps at once, then each step's state, and computes the
gates in one kernel. A layer's recurrent weights, 6.8 MB, are read once: they stay in the socket's cache of 39 MB, in
which its instances share them.
"""

from __future__ import annotations

from collections.abc import Iterator

from scaffe.parallel.instances.simulation.layers import LayerCost
from scaffe.parallel.instances.simulation.training import Passes

WIDTH, STEPS, BATCH, VOCABULARY, LAYERS, BYTES = 650, 35, 64, 10_000, 2, 4
GATES = 4 * WIDTH
CHANNELS = 16  # that a core computes at once, as scaffe.tools.work has it


def passes(inference: bool) -> Passes:
    """Return the passes over a batch of sequences."""
    costs = list(_forward())
    return Passes(costs if inference else [*costs, *_backward()], BATCH)


def product(
    name: str, rows: int, inputs: int, outputs: int, reads_weights: bool = True, sums: bool = False
) -> LayerCost:
    """Return the cost of rows x inputs times inputs x outputs; `sums`: of weights' gradients, which instances sum."""
    weights = BYTES * inputs * outputs
    parameters = weights * (reads_weights + sums)
    moved = BYTES * rows * (inputs + outputs)
    return _cost(name, rows, outputs, moved, 2.0 * rows * inputs * outputs, parameters, weights * sums)


def access(name: str, rows: int, width: float, passed: float, gradients: float = 0.0) -> LayerCost:
    """Return the cost of element-wise work on rows that reads and writes `passed` widths of them."""
    return _cost(name, rows, width, BYTES * rows * width * passed, 0.0, gradients, gradients)


def _cost(
    name: str, rows: int, width: float, moved: float, flops: float, parameters: float, gradients: float
) -> LayerCost:
    units = int(rows * -(-width // CHANNELS))
    seconds = flops / 1e11 or moved / 2e10  # a Machine's rates replace these
    return LayerCost(name, seconds, flops, moved, parameters, gradients, units)


def _forward() -> Iterator[LayerCost]:
    rows = BATCH * STEPS
    yield access("embed", rows, WIDTH, 2)
    for layer in range(1, LAYERS + 1):
        yield product(f"lstm{layer} inputs", rows, WIDTH, GATES)
        for step in range(STEPS):
            yield product(f"lstm{layer} state {step}", BATCH, WIDTH, GATES, reads_weights=not step)
            yield access(f"lstm{layer} gates {step}", BATCH, WIDTH, 4 + 1 + 2)  # gates, cell; cell, state
    yield product("predict", rows, WIDTH, VOCABULARY)
    yield access("softmax", rows, VOCABULARY, 2)


def _backward() -> Iterator[LayerCost]:
    rows = BATCH * STEPS
    yield access("softmax, back", rows, VOCABULARY, 2)
    yield product("predict, inputs", rows, WIDTH, VOCABULARY)
    yield product("predict, weights", rows, WIDTH, VOCABULARY, reads_weights=False, sums=True)
    for layer in range(LAYERS, 0, -1):
        for step in range(STEPS):
            yield access(
                f"lstm{layer} gates {step}, back", BATCH, WIDTH, 4 + 2 + 2 + 4
            )  # gates, cells, gradients; gates
            yield product(f"lstm{layer} state {step}, back", BATCH, GATES, WIDTH, reads_weights=not step)
        yield product(f"lstm{layer} inputs, back", rows, GATES, WIDTH)
        for part in ("inputs", "state"):
            yield product(f"lstm{layer} {part}, weights", rows, WIDTH, GATES, reads_weights=False, sums=True)
    yield access("embed, back", rows, WIDTH, 2, BYTES * VOCABULARY * WIDTH)
