"""What the rank that is left of several takes over, and what it leaves to a user's own nets and to the mirror."""

from types import SimpleNamespace

import nets
import numpy as np
import pytest
from one_left import lose, solver

import scaffe
from scaffe.parallel.mirror import Mirror, Mirrored
from scaffe.parallel.run import Run
from scaffe.training.losses import Losses
from scaffe.training.solver import Solver


@pytest.fixture
def one(monkeypatch, tmp_path) -> Solver:
    """Return a solver whose ranks go on."""
    images = nets.write_images(tmp_path / "db", count=24, shape=(1, 4, 4))
    made = solver(monkeypatch, nets.solver_with(nets.softmax_regression(images)), Run(on_rank_loss="shrink"))
    yield made
    made.close()


def test_a_users_net_shares_the_parameters_of_each_net_that_follows(monkeypatch, one):
    own, third = (scaffe.Net(one.net.param, scaffe.TEST) for _ in range(2))
    own.share_with(one.net)
    third.share_with(own)
    before = one.net
    for _ in range(2):
        lost = lose(monkeypatch, Losses, "take", 2)
        one.step(2)
        assert lost and one.net is not before
        for net in (before, own, third):
            assert np.shares_memory(net.packed.data, one.net.packed.data)


@pytest.mark.parametrize("holder", [None, 0, 1, 2])
def test_memory_that_is_not_taken_over_stays_while_a_user_holds_an_array_there(one, holder):
    """Also if it is that of a net that shares the parameters, or that shares those of such a net."""
    own, third = (scaffe.Net(one.net.param, scaffe.TEST) for _ in range(2))
    own.share_with(one.net)
    third.share_with(own)
    held = None if holder is None else (one.net, own, third)[holder].params["ip"][0].data
    memory, windows = one.net.packed.flat.view(np.uint8), []
    given_up = SimpleNamespace(node=SimpleNamespace(memory=[memory]), abandon=lambda windows: given.append(windows))
    given, one.parts._broken = windows, [given_up]
    one.parts.give_back()
    one.parts.give_back()
    assert windows == [held is None]


def test_the_rule_goes_on_with_a_history_that_is_not_the_mirrors(monkeypatch, one):
    def lose_the_root() -> None:
        arrays = [flat.copy() for flat in (one.net.packed.flat, *one.parts.rule.history)]
        one.parts.mirror.kept = Mirrored((one.recovery.state(), one.recovery.rollback.mark), arrays)
        kept.append((arrays, [flat.copy() for flat in arrays]))
        one.world.losing, one.recovery.was_root = [0], False

    kept: list[tuple[list[np.ndarray], list[np.ndarray]]] = []
    one.parts.mirror = Mirror(9)
    lost = lose(monkeypatch, Losses, "take", 2, lose_the_root)
    one.step(3)
    ((arrays, before),) = kept
    assert lost and one.recovery.was_set_back and arrays[1].any() and (arrays[1] != one.parts.rule.history[0]).any()
    for flat, expected in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(flat, expected)
