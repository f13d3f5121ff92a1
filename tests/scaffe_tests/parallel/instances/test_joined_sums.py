from __future__ import annotations

from threading import Event, Thread

import numpy as np
import pytest

from scaffe.parallel.instances.gradient_sums import BrokenOffError
from scaffe.parallel.instances.joined_sums import JoinedSums

pytestmark = pytest.mark.mpi_skip


def test_all_instances_get_the_sums_round_after_round() -> None:
    joined, found = JoinedSums(5, lambda values: 10 * np.asarray(values)), [[] for _ in range(5)]

    def work(instance: int) -> None:
        for turn in range(50):
            found[instance].append(joined.of(instance)([instance, turn]).tolist())

    threads = [Thread(target=work, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[[100.0, 50.0 * turn] for turn in range(50)]] * 5


def test_one_instance_has_its_own_numbers() -> None:
    assert JoinedSums(1).of(0)([3, 4]).tolist() == [3, 4]


def test_a_thread_that_is_no_instances_waits_for_none() -> None:
    joined = JoinedSums(2, lambda values: 10 * np.asarray(values), computes=lambda: False)
    assert joined.of(1)([3, 4]).tolist() == [30, 40]


def test_an_instance_that_fails_ends_the_others_waits() -> None:
    joined, fault, asked, caught = JoinedSums(2), ValueError("no"), Event(), []

    def work() -> None:
        asked.set()
        try:
            joined.of(0)([1.0])
        except BrokenOffError as error:
            caught.append(error.__cause__)

    thread = Thread(target=work)
    thread.start()
    asked.wait()
    joined.break_off(fault)
    thread.join()
    assert caught == [fault]
    joined.begin()
    assert joined._come == {}
