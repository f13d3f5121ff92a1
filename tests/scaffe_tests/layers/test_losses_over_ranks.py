"""Losses that every rank divides by the normaliser of the global batch: they add up to one rank's."""

import numpy as np
import pytest
from gradient_check import OneLayer, contexts, distinct, rows

rng = np.random.default_rng(0)
LABELS = rng.integers(0, 4, 5)
SCORES = distinct(5, 4) * 4
PROBABILITIES = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
TARGETS = rng.integers(0, 3, (5, 4)).astype(float)
ALIKE = np.array([1, 0, 0, 1, 0])
SIGMOID = 'type: "SigmoidCrossEntropyLoss" loss_param'
LOSSES = [
    ('type: "ContrastiveLoss"', [SCORES, SCORES[::-1], ALIKE], 0),
    ('type: "ContrastiveLoss" contrastive_loss_param { legacy_version: true }', [SCORES, SCORES[::-1], ALIKE], 0),
    ('type: "HingeLoss"', [SCORES, LABELS], 0),
    ('type: "HingeLoss" hinge_loss_param { norm: L2 }', [SCORES, LABELS], 0),
    ('type: "MultinomialLogisticLoss"', [PROBABILITIES, LABELS], 0),
    ('type: "SigmoidCrossEntropyLoss"', [SCORES, TARGETS], 0),
    *((f"{SIGMOID} {{ normalization: {mode} ignore_label: 2 }}", [SCORES, TARGETS], (TARGETS != 2).sum())
      for mode in ("FULL", "VALID", "BATCH_SIZE", "NONE")),
]  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("text", "bottoms", "valid"), LOSSES, ids=[text for text, *_ in LOSSES])
def test_losses_and_gradients_of_all_ranks_add_up_to_one_ranks(ranks, text, bottoms, valid):
    down = [True] + [False] * (len(bottoms) - 1)
    whole = OneLayer(text, *bottoms)
    (loss,) = whole.forward()
    gradient = whole.backward(2.5, down=down)[0]
    total, parts = 0.0, []
    for context in contexts(5, ranks, allsums=lambda _: [valid]):
        it = OneLayer(text, *(bottom[rows(context)] for bottom in bottoms), context=context)
        total += it.forward()[0]
        parts.append(it.backward(2.5, down=down)[0])
    assert total == pytest.approx(float(loss), rel=1e-12)
    np.testing.assert_allclose(np.concatenate(parts), gradient, rtol=1e-12)
