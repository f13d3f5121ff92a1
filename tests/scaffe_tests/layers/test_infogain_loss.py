"""InfogainLoss against its formula, SoftmaxWithLoss, and finite differences."""

from math import log

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.errors import LabelError, NetError, PrototxtError, ShapeError
from scaffe.proto import blobs

SCORES, LABELS = distinct(5, 4, 2) * 4, np.random.default_rng(0).integers(0, 4, (5, 2))
H = distinct(4, 4, seed=1) + 1


def text(fields="", infogain=""):
    return f'type: "InfogainLoss" loss_param {{ {fields} }} infogain_loss_param {{ {infogain} }}'


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("fields", "divisor"), [("", 10), ("normalization: BATCH_SIZE", 5), ("normalization: NONE", 1)]
)
def test_each_class_costs_its_logarithm_by_the_labels_weights(fields, divisor):
    logs, loss = np.log(softmax(SCORES)), 0.0
    for n, place in np.ndindex(5, 2):
        loss -= sum(H[LABELS[n, place], k] * logs[n, k, place] for k in range(4)) / divisor
    (ours,) = OneLayer(text(fields), SCORES, LABELS, H).forward()
    assert ours == pytest.approx(loss, rel=1e-12)


def test_the_identity_gives_the_softmax_loss_and_a_second_top_the_probabilities():
    ours = OneLayer(text(), SCORES, LABELS, np.eye(4), tops=2)
    expected = OneLayer('type: "SoftmaxWithLoss"', SCORES, LABELS)
    loss, prob = ours.forward()
    assert loss == pytest.approx(float(expected.forward()[0]), rel=1e-12)
    np.testing.assert_allclose(prob, softmax(SCORES), rtol=1e-12)
    dx, *_ = ours.backward(1, 0, down=[True, False, False])
    expected_dx, _ = expected.backward(1, down=[True, False])
    np.testing.assert_allclose(dx, expected_dx, rtol=1e-12)


@pytest.mark.parametrize("fields", ["", "ignore_label: 2", "normalization: FULL ignore_label: 2"])
def test_gradient_agrees_with_finite_differences(fields):
    check_gradients(text(fields), SCORES, LABELS, H, smooth=[0])


def test_classes_may_stand_on_another_axis():
    check_gradients(text(infogain="axis: -1"), distinct(3, 2, 4), LABELS[:3], H, smooth=[0])


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_losses_and_gradients_of_all_ranks_add_up_to_one_ranks(ranks):
    whole, total, parts = OneLayer(text("ignore_label: 2"), SCORES, LABELS, H), 0.0, []
    (loss,), down = whole.forward(), [True, False, False]
    for context in contexts(5, ranks, allsums=lambda _: [(LABELS != 2).sum()]):
        it = OneLayer(text("ignore_label: 2"), SCORES[rows(context)], LABELS[rows(context)], H, context=context)
        total += it.forward()[0]
        parts.append(it.backward(2, down=down)[0])
    assert total == pytest.approx(float(loss), rel=1e-12)
    np.testing.assert_allclose(np.concatenate(parts), whole.backward(2, down=down)[0], rtol=1e-12)


def test_an_impossible_class_costs_the_logarithm_of_a_floor():
    (loss,) = OneLayer(text(), [[0.0, 2000.0]], [1], [[0, 0], [1, 0]]).forward()
    assert loss == pytest.approx(-log(1e-20))


def test_weights_may_come_from_a_file(tmp_path):
    path = tmp_path / "h.binaryproto"
    path.write_bytes(blobs.encode(H[None, None]))
    snippet = text(infogain=f'source: "{path}"')
    (ours,) = OneLayer(snippet, SCORES, LABELS).forward()
    assert ours == pytest.approx(float(OneLayer(text(), SCORES, LABELS, H.astype(np.float32)).forward()[0]), rel=1e-12)
    path.write_bytes(b"no proto")
    with pytest.raises(PrototxtError, match="h.binaryproto"):
        OneLayer(snippet, SCORES, LABELS)


def test_weights_are_needed_one_for_each_pair_of_classes():
    with pytest.raises(NetError, match="layer 'it'.*source"):
        OneLayer(text(), SCORES, LABELS)
    with pytest.raises(NetError, match="layer 'it'.*normalize"):
        OneLayer(text("normalize: true"), SCORES, LABELS, H)
    with pytest.raises(ShapeError, match="layer 'it'.*16 weights, got 9"):
        OneLayer(text(), SCORES, LABELS, np.eye(3))
    with pytest.raises(LabelError, match="layer 'it'.*label 4"):
        OneLayer(text(), SCORES, np.full((5, 2), 4), H).forward()


@pytest.mark.parametrize("index", [1, 2])
def test_labels_and_weights_have_no_gradient(index):
    it = OneLayer(text(), SCORES, LABELS, H)
    it.forward()
    with pytest.raises(NetError, match=f"layer 'it'.*bottom {index}"):
        it.backward(1, down=[True, index == 1, index == 2])
