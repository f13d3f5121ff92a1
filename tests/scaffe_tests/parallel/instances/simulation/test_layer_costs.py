"""A layer's load: seconds and bytes worked out by hand."""

from __future__ import annotations

import pytest

from scaffe.parallel.instances.simulation.layers import FASTEST, LayerCost, access_rate, compute_rate, on_machine
from scaffe.parallel.instances.simulation.machine import Machine

QUIET = Machine(cores=8, domains=2)


def test_one_core_takes_what_was_measured() -> None:
    load = LayerCost("conv", 2.0, moved=100.0, parameters=8.0, units=7).load(1.0, 1, QUIET)
    assert (load.seconds, load.moved, load.cores) == (2.0, 108.0, 1)


def test_bytes_of_blobs_grow_with_the_batch_and_those_of_parameters_do_not() -> None:
    load = LayerCost("conv", 2.0, moved=100.0, parameters=8.0, units=7).load(3.0, 1, QUIET)
    assert (load.seconds, load.moved) == (6.0, 308.0)


@pytest.mark.parametrize(("x", "slowest"), [(1, 7), (2, 4), (3, 3), (4, 2)])
def test_the_thread_with_most_units_counts(x: int, slowest: int) -> None:
    assert LayerCost("conv", 7.0, units=7).load(1.0, x, QUIET).seconds == pytest.approx(slowest)


def test_one_unit_is_not_divided() -> None:
    assert LayerCost("conv", 8.0, units=8).load(1 / 8, 4, QUIET).seconds == pytest.approx(1.0)


def test_a_serial_part_is_not_divided() -> None:
    assert LayerCost("conv", 10.0, units=8, serial=0.3).load(1.0, 4, QUIET).seconds == pytest.approx(3 + 7 / 4)


def test_parameters_of_few_images_take_the_time_of_moving_them() -> None:
    load = LayerCost("ip", 1.0, parameters=FASTEST, units=64).load(1 / 64, 1, QUIET)
    assert load.seconds == pytest.approx(1.0)


def test_the_bytes_in_other_domains_come_through_the_link() -> None:
    cost = LayerCost("conv", 8.0, moved=100.0, units=8)
    linked = Machine(cores=8, domains=2, link=10.0)
    assert cost.load(1.0, 4, linked).seconds == pytest.approx(2.0)
    assert cost.load(1.0, 8, linked).seconds == pytest.approx(5.0)


def test_bytes_that_no_core_can_have_moved_came_from_its_caches() -> None:
    [cost] = on_machine([LayerCost("relu", 1.0, moved=3 * FASTEST, parameters=FASTEST)], QUIET)
    assert (cost.moved, cost.parameters) == pytest.approx((0.75 * FASTEST, 0.25 * FASTEST))


def test_a_faster_core_is_faster_in_products_a_wider_one_in_the_rest() -> None:
    costs = [LayerCost("conv", 2.0, 6e9, 1e9), LayerCost("ip", 1.0, 3e9, 7e8, 5e7), LayerCost("relu", 4.0, moved=8e9)]
    assert (compute_rate(costs), access_rate(costs)) == (3e9, 2e9)
    fast = on_machine(costs, Machine(core_gflops=6.0, core_bandwidth=8e9))
    assert [cost.seconds for cost in fast] == pytest.approx([1.0, 0.5, 1.0])
    assert on_machine(costs, Machine()) == costs


def test_products_with_few_operations_for_each_byte_are_access_intensive() -> None:
    """As a convolution of each channel alone is: 9 products for a value that is read and one that is written."""
    assert [LayerCost("depthwise", 1.0, flops, 8.0).computes for flops in (0.0, 18.0, 32.0)] == [False, False, True]
    assert not LayerCost("empty", 1.0).computes


def test_layers_that_are_no_part_of_a_kernel_move_all_their_bytes() -> None:
    costs = [LayerCost("conv", 2.0, 6e9, 1e9), LayerCost("relu", 0.0, moved=8e9), LayerCost("bn", 1.0, moved=2e9)]
    assert [(cost.seconds, cost.moved) for cost in on_machine(costs, Machine())] == [(2.0, 1e9), (0.0, 0.0), (1.0, 2e9)]
    alone = on_machine(costs, Machine(core_bandwidth=4e9, unfused=True))
    assert [(cost.seconds, cost.moved) for cost in alone] == [(2.0, 1e9), (2.0, 8e9), (0.5, 2e9)]
