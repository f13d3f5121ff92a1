"""Update rules: against plain numpy in double precision, blocked and not, and what they refuse."""

from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffe import solvers
from scaffe.blob import Blob
from scaffe.blobs.packed import PackedParameters, ParameterBlob
from scaffe.errors import ScaffeError
from scaffe.proto import SolverParameter
from scaffe.solvers.rule import Rule

MOMENTUM = {"AdaGrad": 0.0, "RMSProp": 0.0}
SHAPES = [(7, 5), (), (1,), (300,), (2, 3, 4)]


def rule_of(kind, shapes=SHAPES, decay=0.01, **fields):
    """Return a rule over parameters of those shapes, filled alike each time; every second has other multipliers."""
    parameters = [
        ParameterBlob("layer", i, Blob(shape), lr_mult=1 + i % 2, decay_mult=1 - i % 2)
        for i, shape in enumerate(shapes)
    ]
    packed = PackedParameters(parameters)
    rng = np.random.default_rng(3)
    for i in range(len(shapes)):
        packed.view(packed.data, i)[...] = rng.standard_normal(shapes[i])
    fields.setdefault("momentum", MOMENTUM.get(kind, 0.9))
    return solvers.create(SolverParameter(type=kind, weight_decay=decay, **fields), packed)


def run(rule, iterations=4):
    """Update with gradients that are the same each time; return values and history."""
    rng = np.random.default_rng(4)
    for iteration in range(iterations):
        for i in range(len(rule.packed.parameters)):
            rule.packed.view(rule.packed.diff, i)[...] = rng.standard_normal(rule.packed.parameters[i].blob.shape)
        rule.update(range(len(rule.packed.parameters)), 0.1, iteration)
    return [rule.packed.data, *rule.history]


def test_all_of_caffes_solver_types_and_lars_are_there():
    assert solvers.kinds() == ["AdaDelta", "AdaGrad", "Adam", "LARS", "Nesterov", "RMSProp", "SGD"]


@pytest.mark.parametrize("kind", solvers.kinds())
@given(block=st.integers(1, 400), iter_size=st.integers(1, 3))
def test_the_size_of_a_block_does_not_change_a_bit(kind, block, iter_size):
    whole = run(rule_of(kind, iter_size=iter_size))
    size = Rule.block
    try:
        Rule.block = block
        blocked = run(rule_of(kind, iter_size=iter_size))
    finally:
        Rule.block = size
    for a, b in zip(whole, blocked, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", solvers.kinds())
def test_parameters_may_be_updated_in_any_order_and_groups(kind):
    together, apart = rule_of(kind), rule_of(kind)
    rng = np.random.default_rng(4)
    together.packed.diff[...] = apart.packed.diff[...] = rng.standard_normal(together.packed.diff.size)
    together.update(range(5), 0.1, 0)
    for indices in ([3], [4, 0], [], [2, 1]):
        apart.update(indices, 0.1, 0)
    assert np.array_equal(together.packed.data, apart.packed.data)


@pytest.mark.parametrize("kind", solvers.kinds())
def test_an_update_leaves_the_gradients_of_other_parameters_to_the_thread_that_computes_them(kind):
    rule = rule_of(kind)
    rule.packed.clear_diffs()
    blobs = [parameter.blob for parameter in rule.packed.parameters]
    blobs[3].diff[...] = 1
    rule.update([3], 0.1, 0)
    assert [blob.diff_values.is_zero for blob in blobs] == [True, True, True, False, True]


def test_threads_that_update_at_once_have_scratch_memory_of_their_own(monkeypatch):
    rule, seen, begun, may_end = rule_of("SGD"), [], Event(), Event()

    def step(diff, history, scratch, rate, iteration):
        seen.append(scratch[0])
        begun.set()
        assert may_end.wait(900)

    monkeypatch.setattr(rule, "step", step)
    thread = Thread(target=rule.update, args=([0], 0.1, 0))
    thread.start()
    assert begun.wait(900)
    monkeypatch.setattr(rule, "step", lambda diff, history, scratch, *given: seen.append(scratch[0]))
    rule.update([3], 0.1, 0)
    may_end.set()
    thread.join()
    assert not np.shares_memory(*seen)


@pytest.mark.parametrize("kind", [kind for kind in solvers.kinds() if kind != "LARS"])
@given(cuts=st.sets(st.integers(1, 430)))
def test_parts_of_parameters_may_be_updated_one_by_one(kind, cuts):
    together, apart = rule_of(kind, iter_size=2), rule_of(kind, iter_size=2)
    rng = np.random.default_rng(4)
    size = together.packed.diff.size
    ends = sorted({0, size, *(cut for cut in cuts if cut < size)})
    for iteration in range(2):
        together.packed.diff[...] = apart.packed.diff[...] = rng.standard_normal(size)
        together.update(range(5), 0.1, iteration)
        for start, stop in zip(ends, ends[1:], strict=False):
            there = [i for i, p in enumerate(apart.packed.slices) if p.start < stop and start < p.stop]
            apart.update(there, 0.1, iteration, slice(start, stop))
    assert apart.elementwise
    assert np.array_equal(together.packed.data, apart.packed.data)
    for ours, theirs in zip(together.history, apart.history, strict=True):
        assert np.array_equal(ours, theirs)


def lars_in_double(rule, iterations=4, trust=0.02, momentum=0.9):
    """Return what LARS makes of `rule`'s parameters, written as in the paper."""
    values = [rule.packed.view(rule.packed.data, i).astype(np.float64) for i in range(len(SHAPES))]
    velocities = [np.zeros_like(value) for value in values]
    rng = np.random.default_rng(4)
    for _ in range(iterations):
        for i, (value, velocity) in enumerate(zip(values, velocities, strict=True)):
            decay = 0.01 * (1 - i % 2)
            diff = rng.standard_normal(value.shape).astype(np.float32) / 2
            norm = np.linalg.norm(value)
            ratio = trust * norm / (np.linalg.norm(diff) + decay * norm)
            velocity[...] = momentum * velocity + 0.1 * (1 + i % 2) * ratio * (diff + decay * value)
            value -= velocity
    return values


def test_lars_is_the_papers_formula():
    fields = {"lars_trust": 0.02, "iter_size": 2}
    expected = lars_in_double(rule_of("LARS", **fields))
    rule = rule_of("LARS", **fields)
    run(rule)
    for i, values in enumerate(expected):
        assert np.allclose(rule.packed.view(rule.packed.data, i), values, rtol=1e-5, atol=1e-7)


def test_lars_moves_values_that_are_zero():
    rule = rule_of("LARS", [(4,)], lars_trust=0.5)
    rule.packed.data[...] = 0
    rule.packed.diff[:4] = [1, 2, 3, 4]
    rule.update([0], 0.1, 0)
    assert np.allclose(rule.packed.data[:4], [-0.05, -0.1, -0.15, -0.2])


def test_lars_leaves_values_alone_whose_gradient_is_zero():
    rule = rule_of("LARS", [(4,), (4,)])
    before = rule.packed.view(rule.packed.data, 1).copy()
    rule.update([1], 0.1, 0)
    assert np.array_equal(rule.packed.view(rule.packed.data, 1), before)


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("AdaGrad", {"momentum": 0.9}, "'AdaGrad': momentum must be 0, got 0.9"),
        ("RMSProp", {"momentum": 0.5}, "'RMSProp': momentum must be 0, got 0.5"),
        ("RMSProp", {"rms_decay": 1.0}, "rms_decay must be at least 0 and below 1, got 1"),
        ("RMSProp", {"rms_decay": -0.1}, "rms_decay must be at least 0 and below 1, got -0.1"),
        ("AdaDelta", {"momentum": 1.5}, "momentum must be between 0 and 1, got 1.5"),
        ("Adam", {"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1"),
        ("Adam", {"momentum2": 1.0}, "momentum2 must be at least 0 and below 1, got 1"),
        ("LARS", {"lars_trust": 0.0}, "lars_trust must be above 0, got 0"),
        ("LARS", {"regularization_type": "L1"}, "regularization_type must be L2, got 'L1'"),
        ("SGD", {"regularization_type": "L3"}, "regularization_type must be one of L2 L1, got 'L3'"),
        ("Adamax", {}, "unknown solver type 'Adamax'"),
    ],
)
def test_a_field_out_of_range_is_named_with_its_value(kind, fields, said):
    with pytest.raises(ScaffeError, match=said):
        rule_of(kind, **fields)


@pytest.mark.parametrize("place", [0, 31, 32, 299])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", solvers.kinds())
@np.errstate(all="ignore")
def test_an_update_that_is_not_finite_is_told_once_with_its_parameter(kind, value, place, monkeypatch):
    monkeypatch.setattr(Rule, "block", 32)
    rule = rule_of(kind)
    for i in range(len(SHAPES)):
        rule.packed.view(rule.packed.diff, i)[...] = 0.5
    rule.packed.diff[rule.packed.slices[3]][place] = value
    rule.update(range(len(SHAPES)), 0.1, 0)
    assert rule.faulty() is rule.packed.parameters[3]
    assert rule.faulty() is None


@pytest.mark.parametrize("kind", solvers.kinds())
@np.errstate(all="ignore")
def test_large_values_are_no_false_alarm(kind):
    rule = rule_of(kind, decay=0)
    rule.packed.data[...] = 1e22  # their squares are above all that float32 has
    rule.packed.diff[...] = 1
    rule.update(range(len(SHAPES)), 0.5, 0)
    rule.look()
    assert rule.faulty() is None


@pytest.mark.parametrize("kind", ["AdaDelta", "AdaGrad", "Adam", "RMSProp"])
@np.errstate(all="ignore")
def test_history_that_overflows_is_told_though_the_values_stay(kind):
    rule = rule_of(kind)
    rule.packed.view(rule.packed.diff, 4)[1, 2, 3] = 1e25
    rule.update(range(len(SHAPES)), 0.1, 0)
    assert np.isfinite(rule.packed.data).all()
    assert rule.faulty() is rule.packed.parameters[4]


@np.errstate(all="ignore")
def test_gradients_are_clipped_whose_squares_are_above_all_that_float32_has():
    rule = rule_of("SGD", clip_gradients=3)
    rng = np.random.default_rng(0)
    rule.packed.diff[...] = given = 1e25 * rng.standard_normal(rule.packed.diff.size)
    rule.clip()
    np.testing.assert_allclose(rule.packed.diff, 3 * given / np.linalg.norm(given), rtol=1e-5)


@np.errstate(all="ignore")
def test_lars_moves_values_whose_gradients_squares_are_above_all_that_float32_has():
    rule = rule_of("LARS", [(4,)], lars_trust=0.5)
    rule.packed.data[:4] = [3, 4, 0, 0]
    rule.packed.diff[:4] = [0, 0, 3e25, 4e25]
    rule.update([0], 0.1, 0)
    assert np.allclose(rule.packed.data[:4], [3, 4, -0.05 * 3, -0.05 * 4], rtol=1e-5)


def test_history_is_copied_to_the_elements_that_a_rank_owns():
    rule = rule_of("SGD")
    whole = rule.packed.slices[0]
    owned = [slice(whole.start + 2, whole.start + 4), slice(whole.stop - 1, whole.stop)]
    rule.keep(owned)
    rule.history[0][...] = [1, 2, 3]
    found = np.full(rule.packed.parameters[0].blob.shape, 9.0, np.float32)
    rule.copy_history(0, found)
    count = found.size
    assert found.reshape(-1).tolist() == [9, 9, 1, 2, *[9] * (count - 5), 3]
