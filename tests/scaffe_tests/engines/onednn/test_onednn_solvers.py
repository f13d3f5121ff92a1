"""Updates by oneDNN: the same as numpy's, and as it lies in the blobs."""

import threading

import numpy as np
import pytest
from both_engines import needs_bf16, needs_onednn

from scaffe import solvers
from scaffe.blob import Blob
from scaffe.blobs.packed import PackedParameters, ParameterBlob
from scaffe.engines.onednn import library
from scaffe.engines.onednn.neighbours import MOST, neighbours
from scaffe.engines.onednn.primitives import Onednn
from scaffe.engines.onednn.sgd import BlockAddition, OnednnSGD
from scaffe.proto import SolverParameter

pytestmark = needs_onednn
SHAPES = [(3, OnednnSGD.block), (7,), (OnednnSGD.block + 5,), (2, 50), (3, OnednnSGD.block // 6)]


def rule_of(engine, **fields):
    parameters = [
        ParameterBlob("layer", i, Blob(shape), lr_mult=1 + i % 2, decay_mult=1 - i / 4)
        for i, shape in enumerate(SHAPES)
    ]
    parameters[3].sharers.append(Blob(SHAPES[3]))
    packed = PackedParameters(parameters)
    packed.data[...] = np.random.default_rng(1).standard_normal(packed.data.size)
    param = SolverParameter(**{"type": "SGD", "momentum": 0.9, "weight_decay": 0.01} | fields)
    return solvers.create(param, packed, engine)


def update(rule, rate, iteration, cut):
    """Update all parameters, the first of them in two parts, the second first, unless `cut` is None."""
    others = range(len(SHAPES))
    if cut is not None:
        for part in (slice(cut, rule.packed.slices[0].stop), slice(0, cut)):
            rule.update([0], rate, iteration, part)
        others = others[1:]
    rule.update(others, rate, iteration)


@pytest.mark.parametrize("cut", [None, 2 * OnednnSGD.block, 1000], ids=["whole", "cut between blocks", "and in one"])
@pytest.mark.parametrize("fields", [{}, {"iter_size": 3}, {"regularization_type": "L1"}, {"clip_gradients": 5}])
@pytest.mark.parametrize("numbers", ["float32", pytest.param("bf16", marks=needs_bf16)])
def test_updates_are_numpys(numbers, fields, cut):
    rules = rule_of(Onednn(1, numbers), **fields), rule_of(None, **fields)
    assert isinstance(rules[0], OnednnSGD) and not isinstance(rules[1], OnednnSGD)
    for iteration in range(3):
        for rule in rules:
            rng = np.random.default_rng(iteration)
            rule.packed.clear_diffs()
            for parameter in rule.packed.parameters:
                parameter.blob.diff[...] = rng.standard_normal(parameter.blob.shape)
            rule.clip()
            update(rule, 0.1 / (1 + iteration), iteration, cut)
        ours, theirs = rules
        np.testing.assert_allclose(ours.packed.data, theirs.packed.data, atol=2e-6)
        np.testing.assert_allclose(ours.history[0], theirs.history[0], atol=2e-6)
        for mine, reference in zip(ours.packed.parameters, theirs.packed.parameters, strict=True):
            np.testing.assert_allclose(mine.blob.diff, reference.blob.diff, atol=2e-6, err_msg="the update")


SMALL_SHAPES = [(20, 25), (20,), (3, 7), (MOST,), (5,), (1,), (100,), (9,), (6, 2)]


def small(**fields):
    """Return a rule of parameters of which numpy updates most together, with random gradients."""
    rng, parameters = np.random.default_rng(1), []
    for i, shape in enumerate(SMALL_SHAPES):
        parameters.append(ParameterBlob("layer", i, Blob(shape), lr_mult=1 + i % 2, decay_mult=i % 3))
    parameters[6].sharers.append(Blob(SMALL_SHAPES[6]))
    packed = PackedParameters(parameters)
    packed.data[...] = rng.standard_normal(packed.data.size)
    param = SolverParameter(**{"type": "SGD", "momentum": 0.9, "weight_decay": 0.01} | fields)
    return solvers.create(param, packed, Onednn(1))


@pytest.mark.parametrize("fields", [{}, {"iter_size": 3}, {"regularization_type": "L1"}, {"weight_decay": 0}])
@pytest.mark.parametrize("cut", [None, 510], ids=["whole", "cut in the first"])
def test_neighbours_are_updated_bit_for_bit_as_each_alone(fields, cut):
    together, alone = small(**fields), small(**fields)
    for iteration in range(3):
        for rule in together, alone:
            rng = np.random.default_rng(iteration)
            rule.packed.clear_diffs()
            for parameter in rule.packed.parameters:
                parameter.blob.diff[...] = rng.standard_normal(parameter.blob.shape)
        end = together.packed.slices[-1].stop
        parts = [slice(0, end)] if cut is None else [slice(0, cut), slice(cut, end)]
        for part in parts:
            inside = [
                i for i, one in enumerate(together.packed.slices) if one.start < part.stop and part.start < one.stop
            ]
            together.update(inside, 0.1 / (1 + iteration), iteration, part)
            for i in inside:
                alone.update([i], 0.1 / (1 + iteration), iteration, part)
        np.testing.assert_array_equal(together.packed.data, alone.packed.data)
        np.testing.assert_array_equal(together.history[0], alone.history[0])
        for one, other in zip(together.packed.parameters, alone.packed.parameters, strict=True):
            np.testing.assert_array_equal(one.blob.diff, other.blob.diff)
    runs = neighbours(together, range(len(SMALL_SHAPES)), None)
    assert [run.indices for run in runs] == [[0, 1, 2], [3], [4, 5], [6], [7, 8]]


def test_neighbours_take_factors_that_change_and_keep_to_what_the_rank_owns():
    together, alone = small(), small()
    first, *_, last = together.packed.slices
    for iteration, ranges in enumerate(
        [[first], [slice(first.start, last.stop)], [slice(first.start + 1, last.stop - 1)]]
    ):
        for rule in together, alone:
            rule.keep(ranges)
            rule.packed.clear_diffs()
            for k, parameter in enumerate(rule.packed.parameters):
                parameter.blob.diff[...] = k - 2
                parameter.lr_mult = iteration
                parameter.decay_mult = 2 - iteration
        owned = [i for i, one in enumerate(together.packed.slices) if together.owned.within(one)]
        together.update(owned, 0.1, iteration, ranges[0])
        for i in owned:
            alone.update([i], 0.1, iteration, ranges[0])
        np.testing.assert_array_equal(together.packed.data, alone.packed.data)
        np.testing.assert_array_equal(together.history[0], alone.history[0])


def test_neighbours_without_gradients_are_updated_by_none_not_by_their_last():
    together, alone = small(), small()
    for rule in together, alone:
        rule.packed.diff[...] = 3
        rule.packed.clear_diffs()  # deferred: nothing is written before the update
    together.update(range(len(SMALL_SHAPES)), 0.1, 0)
    for i in range(len(SMALL_SHAPES)):
        alone.update([i], 0.1, 0)
    np.testing.assert_array_equal(together.packed.data, alone.packed.data)


def test_many_tiny_parameters_are_in_runs_that_fit():
    rule, count = small(), 3000
    parameters = [ParameterBlob("layer", i, Blob((1,))) for i in range(count)]
    packed = PackedParameters(parameters)
    rule = solvers.create(rule.param, packed, rule.engine)
    runs = neighbours(rule, range(count), None, most=1000)
    assert [i for run in runs for i in run.indices] == [*range(count)]
    assert len(runs) > 1 and all(run.within.stop - run.within.start <= 1000 for run in runs)


def test_the_first_of_the_neighbours_that_is_not_finite_is_named():
    rule = small()
    rule.packed.clear_diffs()
    rule.packed.parameters[2].blob.diff[1, 1] = np.inf
    with np.errstate(all="ignore"):
        rule.update(range(len(SMALL_SHAPES)), 0.1, 0)
    assert rule.faulty().index == 2 and rule.faulty() is None


def test_updates_that_ended_in_an_error_leave_nothing_behind():
    cut = 2 * OnednnSGD.block
    rules = rule_of(Onednn(1)), rule_of(None)
    for rule in rules:
        rule.packed.clear_diffs()
        rule.packed.diff[...] = 1
        rule.update([0], 0.1, 0, slice(cut, rule.packed.slices[0].stop))  # another thread fails
    for rule in rules:
        rule.packed.clear_diffs()
        rule.packed.diff[...] = 2
        update(rule, 0.1, 0, cut)
    np.testing.assert_allclose(rules[0].packed.data, rules[1].packed.data, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rules[0].packed.diff, rules[1].packed.diff, rtol=1e-6, atol=1e-6)


def test_a_thread_that_updates_keeps_the_number_of_threads_that_it_computes_with():
    openmp, rule, seen = library.openmp(), rule_of(Onednn(3)), []
    if openmp is None:
        pytest.skip("this libdnnl has threads of another kind than libgomp's")

    def work():
        own = Onednn(2)
        update(rule, 0.1, 0, None)
        seen.append(openmp.omp_get_max_threads())
        own.enter()
        seen.append(openmp.omp_get_max_threads())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [2, 2]


def test_a_thread_computes_each_engine_s_net_with_its_number_of_threads():
    openmp, seen = library.openmp(), []
    if openmp is None:
        pytest.skip("this libdnnl has threads of another kind than libgomp's")

    def work():
        for engine in [*(both := (Onednn(2), Onednn(3))), *both]:
            engine.enter()
            seen.append(openmp.omp_get_max_threads())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [2, 3, 2, 3]


def test_threads_that_update_at_once_have_primitives_of_their_own(monkeypatch):
    rule, seen, begun, may_end = rule_of(Onednn(1)), [], threading.Event(), threading.Event()

    def run(addition, *given):
        seen.append(addition)
        begun.set()
        assert may_end.wait(900)

    monkeypatch.setattr(BlockAddition, "run", run)
    thread = threading.Thread(target=rule.update, args=([0], 0.1, 0, slice(0, OnednnSGD.block)))
    thread.start()
    assert begun.wait(900)
    monkeypatch.setattr(BlockAddition, "run", lambda addition, *given: seen.append(addition))
    rule.update([2], 0.1, 0)
    may_end.set()
    thread.join()
    assert seen[0] is not seen[1]


def test_bits_do_not_depend_on_where_a_parameter_is_cut():
    rules = [rule_of(Onednn(1)) for _ in range(2)]
    for rule, cut in zip(rules, (None, 1000), strict=True):
        rule.packed.clear_diffs()
        rule.packed.diff[...] = np.random.default_rng(2).standard_normal(rule.packed.diff.size)
        update(rule, 0.1, 0, cut)
    assert rules[0].packed.data.tobytes() == rules[1].packed.data.tobytes()
    assert rules[0].history[0].tobytes() == rules[1].history[0].tobytes()
