"""Learning rates against the formulas written out, and their fields' limits."""

import math

import pytest

from scaffe.errors import ScaffeError
from scaffe.proto import SolverParameter
from scaffe.solvers import lr_policy

GIVEN = dict(base_lr=0.5, gamma=0.25, power=0.75, stepsize=10, stepvalue=[5, 12], max_iter=100)
EXPECTED = {
    "fixed": lambda t: 0.5,
    "step": lambda t: 0.5 * 0.25 ** (t // 10),
    "exp": lambda t: 0.5 * 0.25**t,
    "inv": lambda t: 0.5 / (1 + 0.25 * t) ** 0.75,
    "multistep": lambda t: 0.5 * 0.25 ** ((t >= 5) + (t >= 12)),
    "poly": lambda t: 0.5 * (1 - t / 100) ** 0.75,
    "sigmoid": lambda t: 0.5 / (1 + math.exp(-0.25 * (t - 10))),
}


@pytest.mark.parametrize("policy", EXPECTED)
@pytest.mark.parametrize("iteration", [0, 1, 4, 5, 9, 10, 11, 12, 25, 99])
def test_the_rate_follows_its_formula(policy, iteration):
    param = SolverParameter(lr_policy=policy, **GIVEN)
    assert lr_policy.rate(param, iteration) == pytest.approx(EXPECTED[policy](iteration), rel=1e-12)


def test_extremes_stay_finite():
    steep = SolverParameter(lr_policy="sigmoid", base_lr=1, gamma=10, stepsize=1000)
    assert lr_policy.rate(steep, 0) == pytest.approx(0, abs=1e-300)
    late = SolverParameter(lr_policy="poly", base_lr=1, power=0.5, max_iter=10)
    assert lr_policy.rate(late, 11) == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(lr_policy="stpe"), "'stpe' is unknown; did you mean 'step'"),
        (dict(), "lr_policy is missing; known policies: fixed step"),
        (dict(lr_policy="step"), "stepsize above 0"),
        (dict(lr_policy="poly"), "max_iter above 0"),
        (dict(lr_policy="sigmoid", gamma=-1), "gamma of 0 or more"),
        (dict(lr_policy="multistep", stepvalue=[5, 3]), "must rise"),
    ],
)
def test_fields_that_make_no_sense_are_named(fields, said):
    with pytest.raises(ScaffeError, match=said):
        lr_policy.check(SolverParameter(**fields))


@pytest.mark.parametrize(("policy", "fields"), [("fixed", {}), ("poly", {"power": 2, "max_iter": 40})])
def test_a_warm_up_rises_on_a_line_to_the_policys_rate(policy, fields):
    cold = SolverParameter(base_lr=0.8, lr_policy=policy, **fields)
    warm = SolverParameter(base_lr=0.8, lr_policy=policy, warmup_iter=10, warmup_start_lr=0.1, **fields)
    lr_policy.check(warm)
    assert lr_policy.rate(warm, 0) == pytest.approx(0.1)
    assert lr_policy.rate(warm, 5) == pytest.approx((0.1 + lr_policy.rate(cold, 5)) / 2)
    assert [lr_policy.rate(warm, i) for i in (10, 11, 30)] == [lr_policy.rate(cold, i) for i in (10, 11, 30)]


@pytest.mark.parametrize("field", ["warmup_iter", "warmup_start_lr"])
def test_a_warm_up_below_zero_is_refused(field):
    with pytest.raises(ScaffeError, match=f"{field} must be 0 or more, got -1"):
        lr_policy.check(SolverParameter(lr_policy="fixed", **{field: -1}))
