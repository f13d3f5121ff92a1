"""Matching where MultiBoxLoss's test does not reach: ties, boxes that share a prior, a box that no prior overlaps."""

import numpy as np

from scaffe.layers.box_matching import hard_negatives, match

PRIORS = np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.4], [0.5, 0.5, 1, 1]])


def test_each_box_has_a_prior_of_its_own_though_another_is_nearer():
    index, _ = match(PRIORS, np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.49]]), None)
    np.testing.assert_array_equal(index, [0, 1, -1])


def test_a_box_that_no_prior_overlaps_stays_without_one():
    index, largest = match(PRIORS[:2], np.array([[0.6, 0.6, 0.9, 0.9]]), 0.0)
    np.testing.assert_array_equal(index, [-1, -1])
    np.testing.assert_array_equal(largest, [0, 0])


def test_without_boxes_nothing_is_matched():
    index, largest = match(PRIORS, np.empty((0, 4)), 0.5)
    np.testing.assert_array_equal(index, [-1] * 3)
    np.testing.assert_array_equal(largest, [0] * 3)


def test_negatives_are_the_hardest_that_overlap_no_box():
    index, largest = np.array([0, -1, -1, -1, -1]), np.array([1, 0.6, 0.1, 0.2, 0])
    losses = np.array([9, 8, 1, 3, 2])
    np.testing.assert_array_equal(hard_negatives(index, largest, losses, 2, 0.5), [3, 4])
    np.testing.assert_array_equal(hard_negatives(index, largest, losses, 9, 0.5), [2, 3, 4])
    np.testing.assert_array_equal(hard_negatives(index, largest, losses, 0.9, 0.5), [])


def test_an_overlap_of_neg_overlap_is_no_negative():
    index, largest = np.array([0, -1, -1]), np.array([1, 0.5, 0.25])
    np.testing.assert_array_equal(hard_negatives(index, largest, np.ones(3), 3, 0.5), [2])
