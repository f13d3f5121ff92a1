"""Accuracy against a count by hand, and divided over ranks."""

import numpy as np
import pytest
from gradient_check import OneLayer, contexts, rows

from scaffe.errors import LabelError, ShapeError

RNG = np.random.default_rng(3)
SCORES = RNG.integers(0, 4, (7, 5, 2)).astype(float)  # few values, so that many tie
LABELS = RNG.integers(0, 5, (7, 2)).astype(float)


def text(fields=""):
    return f'type: "Accuracy" accuracy_param {{ {fields} }}'


def count(top_k, ignore=None):
    """Return right answers and labels of each class."""
    right, labels = np.zeros(5), np.zeros(5)
    for n, place in np.ndindex(7, 2):
        label = int(LABELS[n, place])
        if label == ignore:
            continue
        better = [c for c in range(5) if c != label and SCORES[n, c, place] >= SCORES[n, label, place]]
        right[label] += len(better) < top_k
        labels[label] += 1
    return right, labels


@pytest.mark.parametrize("top_k", [1, 2, 5])
@pytest.mark.parametrize("ignore", [None, 3])
def test_accuracy_is_the_fraction_of_labels_among_the_best_scores(top_k, ignore):
    fields = f"top_k: {top_k}" + (f" ignore_label: {ignore}" if ignore is not None else "")
    accuracy, per_class = OneLayer(text(fields), SCORES, LABELS, tops=2).forward()
    right, labels = count(top_k, ignore)
    assert accuracy == pytest.approx(right.sum() / labels.sum(), rel=1e-12)
    np.testing.assert_allclose(per_class, right / np.maximum(labels, 1), rtol=1e-12)


def test_a_tie_counts_against_the_label():
    assert OneLayer(text(), [[1.0, 1.0, 0.0]], [0.0]).forward()[0] == 0


def test_scores_that_are_not_numbers_are_wrong():
    assert OneLayer(text(), [[np.nan, np.nan], [0.0, np.nan]], [0.0, 0.0]).forward()[0] == 0


def test_classes_may_lie_on_another_axis():
    moved = OneLayer(text("axis: -1"), np.moveaxis(SCORES, 1, 2), LABELS)
    assert moved.forward() == OneLayer(text(), SCORES, LABELS).forward()


def test_no_labels_left_give_0():
    assert OneLayer(text("ignore_label: 1"), SCORES[:, :, 0], np.ones(7)).forward()[0] == 0


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("ignore", ["", "ignore_label: 3"])
def test_parts_of_all_ranks_add_up_to_one_ranks(ranks, ignore):
    accuracy, per_class = OneLayer(text(ignore), SCORES, LABELS, tops=2).forward()
    sums = AllSums(ranks, text(ignore))
    np.testing.assert_allclose(sum(top[0] for top in sums.tops), accuracy, rtol=1e-12)
    np.testing.assert_allclose(sum(top[1] for top in sums.tops), per_class, rtol=1e-12)


class AllSums:
    """Run the layer on all ranks twice: the first time notes what each gives to allsums, the second has the sums."""

    def __init__(self, ranks, snippet):
        self.given = [[] for _ in range(ranks)]
        for rank in range(ranks):
            self.run(rank, ranks, snippet, self.note(rank))
        sums = [sum(numbers) for numbers in zip(*self.given, strict=True)]
        self.tops = [self.run(rank, ranks, snippet, self.answer(sums)) for rank in range(ranks)]

    def note(self, rank):
        def allsums(numbers):
            self.given[rank].append(np.array(numbers))
            return numbers

        return allsums

    def answer(self, sums):
        left = iter(sums)
        return lambda _: next(left)

    def run(self, rank, ranks, snippet, allsums):
        context = contexts(7, ranks, allsums=allsums)[rank]
        return OneLayer(snippet, SCORES[rows(context)], LABELS[rows(context)], tops=2, context=context).forward()


def test_a_label_that_is_no_class_is_named_with_its_row():
    with pytest.raises(LabelError, match="label 5 in row 1 .*classes 0 to 4"):
        OneLayer(text(), SCORES[:2, :, 0], [4.0, 5.0]).forward()


def test_labels_that_do_not_match_the_scores_are_refused_with_both_shapes():
    with pytest.raises(ShapeError, match=r"'it'.*\(7, 5, 2\).*14 labels.*\(7,\)"):
        OneLayer(text(), SCORES, np.zeros(7))


def test_top_k_beyond_the_classes_is_refused():
    with pytest.raises(ShapeError, match=r"top_k 6.*\(7, 5, 2\)"):
        OneLayer(text("top_k: 6"), SCORES, LABELS)
