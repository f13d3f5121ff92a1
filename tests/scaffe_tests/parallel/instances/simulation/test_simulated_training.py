"""Simulated iterations of instances: against closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scaffe.parallel.instances.gathers.gather import registered
from scaffe.parallel.instances.simulation.layers import LayerCost
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import over_cores, over_delays, over_sizes, predict
from scaffe.parallel.instances.simulation.report import chosen
from scaffe.parallel.instances.simulation.training import UPDATE, Division, Passes, Training

INFINITE = float("inf")


def machine(cores=4, domains=1, bandwidth=INFINITE, barrier=0.0, jitter=0.0, **more) -> Machine:
    return Machine(cores, domains, bandwidth=bandwidth, barrier=barrier, jitter=jitter, **more)


def passes(*costs: LayerCost, batch: int = 8) -> Passes:
    return Passes(costs, batch)


COMPUTE = passes(LayerCost("a", 1.0, flops=1.0, units=8), LayerCost("b", 3.0, flops=1.0, units=8))


def seconds(net: Passes, where: Machine, x: int, iterations: int = 1, **more) -> float:
    return predict(net, where, Division(x, net.batch, **more), iterations).seconds


def test_one_core_takes_the_measured_seconds() -> None:
    found = predict(COMPUTE, machine(1), Division(1, 8), 3)
    assert (found.seconds, found.rate, found.cores_used) == pytest.approx((4.0, 2.0, 1.0))


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_without_limits_p_instances_are_p_times_as_fast(cores: int) -> None:
    assert predict(COMPUTE, machine(cores), Division(1, 8), 2).rate == pytest.approx(2.0 * cores)
    assert predict(COMPUTE, machine(cores), Division(cores, 8), 2).rate == pytest.approx(2.0 * cores)


def test_a_divided_batch_ends_with_the_instance_of_most_images() -> None:
    found = predict(COMPUTE, machine(3), Division(1, 8, divided=True), 1)
    assert (found.seconds, found.rate) == pytest.approx((4.0 * 3 / 8, 8 / 1.5))


def test_threads_pay_a_barrier_after_each_layer() -> None:
    assert seconds(COMPUTE, machine(4, barrier=0.1), 4) == pytest.approx(4 / 4 + 2 * 0.1)
    assert seconds(COMPUTE, machine(4, barrier=0.1), 1) == pytest.approx(4.0)


def test_threads_wait_for_the_slowest_and_instances_do_not() -> None:
    """Independent times of many layers average out in an instance of one core; in a team the largest counts."""
    net = passes(*[LayerCost("a", 1.0, flops=1.0, units=8)] * 200)
    jittery = machine(8, jitter=0.1)
    expected = 1.42360 * 0.1  # mean of the largest of 8 standard normal numbers
    assert seconds(net, jittery, 8) / 25 - 1 == pytest.approx(expected, rel=0.15)
    assert seconds(net, jittery, 1) / 200 - 1 < 0.03


def test_bandwidth_that_one_core_uses_up_gives_no_gain() -> None:
    net = passes(LayerCost("relu", 2.0, moved=20.0, units=8))
    assert predict(net, machine(4, bandwidth=10.0), Division(1, 8), 2).rate == pytest.approx(4.0)
    assert predict(net, machine(4, bandwidth=10.0), Division(4, 8), 2).rate == pytest.approx(4.0)
    assert predict(net, machine(4, 2, bandwidth=10.0), Division(1, 8), 2).rate == pytest.approx(8.0)


def two_phases(repeats: int, compute: float, memory: float) -> Passes:
    one = LayerCost("conv", compute, flops=1.0), LayerCost("relu", memory, moved=10.0 * memory)
    return passes(*one * repeats)


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_a_delay_makes_unlike_layers_meet(repeats: int) -> None:
    """In step the layers that use all bandwidth meet each other; late by one of them, the second meets none."""
    net, where = two_phases(repeats, 3.0, 2.0), machine(2, bandwidth=10.0)
    in_step = predict(net, where, Division(1, 8), 1)
    assert in_step.seconds == pytest.approx(repeats * (3 + 2 * 2))
    [late] = over_delays(net, where, in_step, 2, [2.0], 1)
    assert late.seconds == pytest.approx(repeats * (3 + 2) + 2)
    assert chosen([in_step], [late]) is (late if repeats > 1 else in_step)


def test_a_delay_that_gains_less_than_chance_is_not_chosen() -> None:
    in_step = predict(COMPUTE, machine(2), Division(1, 8), 1)
    assert chosen([in_step], [replace(in_step, rate=1.005 * in_step.rate)]) is in_step


def learning(gradients: float = 4e3) -> Passes:
    return passes(
        LayerCost("relu", 1e-3, moved=1e6),
        LayerCost("ip", 1.0, gradients=gradients),
        LayerCost("conv", 1.0, gradients=gradients / 2),
        batch=1,
    )


# Passes of four instances in one domain, in elements of the gradients: worked out on paper.
PASSES = {"slices": 4 + 1, "tree": (1 + 1 + 1) + (3 + 1)}


@pytest.mark.parametrize("name", sorted(registered()))
@pytest.mark.parametrize("iterations", [1, 3])
def test_each_gather_moves_the_bytes_that_its_docstring_gives(name: str, iterations: int) -> None:
    net, gradients = learning(), 6e3
    used = Training(net, machine(4), Division(1, 1, gather=name), iterations).run()
    others = 4 * 1e6 + UPDATE * gradients
    gathered = (used.moved / iterations - others) / gradients
    if name in PASSES:
        assert gathered == pytest.approx(PASSES[name])
    assert gathered * (1 + 1e-9) >= 4 + 1 and gathered <= (3 * 4 - 1) * (1 + 1e-9)


@pytest.mark.parametrize("name", sorted(registered()))
@pytest.mark.parametrize("domains", [1, 2])
def test_each_gather_ends_with_random_times(name: str, domains: int) -> None:
    where = machine(6, domains, bandwidth=1e9, jitter=0.3)
    found = predict(learning(), where, Division(1, 1, gather=name, groups=3, delay=0.1), 4)
    assert found.instances == 6 and found.seconds > 2.0


def test_gradients_are_summed_during_backward() -> None:
    """The sum of the first layer's gradients hides behind the second layer; that of the second does not."""
    rate = 1e9  # bytes a second, the rate of the layer that moves bytes
    net = learning(4e8)
    slices = (2 + 1) / 2 * 2e8 / rate  # of the last layer, by each of two instances
    update = UPDATE * 6e8 / 2 / rate
    first = (2 + 1) / 2 * 4e8 / rate  # which is owed when the next bucket is given
    found = predict(net, machine(2), Division(1, 1, gather="slices"), 1)
    assert found.seconds == pytest.approx(2.001 + first + slices + update)


def test_inference_gathers_and_waits_for_nothing() -> None:
    jittery = machine(4, jitter=0.2)
    found = predict(COMPUTE, jittery, Division(1, 8), 5)
    assert not found.gathers
    assert found.usage.moved == 0


def test_all_sizes_and_gathers_are_predicted() -> None:
    rows = list(over_sizes(learning(), machine(4, 2), Division(1, 1), ["server", "slices"], 1))
    assert [[(one.division.x, one.division.gather) for one in row] for row in rows] == [
        [(1, "server"), (1, "slices")],
        [(2, "server"), (2, "slices")],
        [(4, "server")],
    ]


def test_sizes_with_fewer_images_than_instances_are_left_out() -> None:
    rows = list(over_sizes(COMPUTE, machine(4), Division(1, 3, divided=True), ["slices"], 1))
    assert [row[0].division.x for row in rows] == [2, 4]


def test_scaling_uses_the_domains_that_the_cores_fill() -> None:
    net = passes(LayerCost("relu", 1.0, moved=10.0, units=64))
    rows = list(over_cores(net, machine(4, 2, bandwidth=10.0), Division(1, 8), 1))
    assert [(cores, each.rate, one.rate) for cores, each, one in rows] == [
        (1, pytest.approx(8.0), pytest.approx(8.0)),
        (2, pytest.approx(8.0), pytest.approx(8.0)),
        (4, pytest.approx(16.0), pytest.approx(16.0)),
    ]
