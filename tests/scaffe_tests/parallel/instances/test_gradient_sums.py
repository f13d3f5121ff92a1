from __future__ import annotations

import random
import threading
from collections.abc import Callable
from threading import Barrier, Event, Thread
from time import sleep

import numpy as np
import pytest

import scaffe.parallel.instances.gathers  # noqa: F401  registers the gathers
from scaffe.parallel.instances.gathers.gather import Addition, find_gather, registered
from scaffe.parallel.instances.gradient_sums import BrokenOffError, GradientSums, add

pytestmark = pytest.mark.mpi_skip
PARTS = [slice(0, 100), slice(112, 113), slice(128, 5000), slice(5008, 9000)]
LENGTHS = [part.stop - part.start for part in PARTS]


def gradients(size: int) -> np.ndarray:
    return np.random.default_rng(size).normal(size=(size, 9000)).astype(np.float32)


def made(name: str, size: int, deterministic: bool = True) -> GradientSums:
    """Return the sums of the gradients above, as tree:2 and two domains or another gather have them."""
    kind, number = find_gather(name)
    diffs = list(gradients(size).copy())
    diffs[0][100:112] = np.nan  # between the buckets
    domains = [i * 2 // size for i in range(size)]
    return GradientSums(kind(domains, LENGTHS, number, deterministic), diffs, PARTS)


def together(size: int, work: Callable[[int], object]) -> list[Thread]:
    """Run `work(instance)` in a thread for each."""
    threads = [Thread(target=work, args=(i,)) for i in range(size)]
    for thread in threads:
        thread.start()
    return threads


def iterate(sums: GradientSums, size: int, seed: int) -> np.ndarray:
    """Run an iteration with random delays between the gifts; return the sums."""

    def work(instance: int) -> None:
        draw = random.Random(100 * seed + instance)
        for bucket in reversed(range(len(PARTS))):
            sleep(draw.choice((0, 0, 0.001)))  # disturbs the order; nothing depends on it
            sums.give(instance, bucket)
        sums.finish(instance)

    sums.begin()
    for thread in together(size, work):
        thread.join()
    return sums.result


def packed(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values[part] for part in PARTS])


@pytest.mark.parametrize("name", [*registered(), "tree:3"])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 16])
def test_threads_sum_as_numpy_does(name: str, size: int) -> None:
    for deterministic in (False, True):
        sums = iterate(made(name, size, deterministic), size, seed=0)
        expected = gradients(size).astype(np.float64).sum(axis=0)
        np.testing.assert_allclose(packed(sums), packed(expected), atol=1e-5)
        assert np.isnan(sums[100:112]).all()


def test_the_sums_lie_in_the_first_gradients() -> None:
    for name in registered():
        diffs = list(gradients(3).copy())
        sums = GradientSums(registered()[name]([0, 0, 1], LENGTHS), diffs, PARTS)
        assert sums.result is diffs[0]


def test_slices_and_a_deterministic_server_add_in_the_order_of_instances() -> None:
    total, *rest = gradients(5)
    for diff in rest:
        total = total + diff
    for name in ("slices", "server"):
        assert packed(iterate(made(name, 5), 5, seed=3)).tobytes() == packed(total).tobytes()


@pytest.mark.parametrize("name", registered())
def test_each_bucket_is_reported_once_when_its_sum_is_there(name: str) -> None:
    sums, expected = made(name, 4), gradients(4).astype(np.float64).sum(axis=0)
    reported: list[int] = []

    def summed(bucket: int) -> None:
        np.testing.assert_allclose(sums.result[PARTS[bucket]], expected[PARTS[bucket]], atol=1e-5)
        reported.append(bucket)

    sums.summed = summed
    iterate(sums, 4, seed=4)
    assert sorted(reported) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", registered())
def test_a_bucket_is_reported_without_the_lock(name: str) -> None:
    sums, free = made(name, 1), list[bool]()

    def look(_: int) -> None:
        free.append(sums._changed.acquire(blocking=False))
        sums._changed.release()

    def summed(bucket: int) -> None:
        together(1, look)[0].join()

    sums.summed = summed
    iterate(sums, 1, seed=5)
    assert free == [True] * 4


@pytest.mark.parametrize("name", registered())
def test_an_instance_that_fails_ends_the_others_waits(name: str) -> None:
    sums, fault = made(name, 3), ValueError("layer 'ip1': no")
    caught: list[BaseException | None] = []
    given = Barrier(3, timeout=900)  # a gift after `break_off` is an error

    def work(instance: int) -> None:
        sums.give(instance, 3)
        given.wait()
        if instance == 2:
            sums.break_off(fault)
            return
        try:
            sums.finish(instance)
        except BrokenOffError as error:
            caught.append(error.__cause__)

    sums.begin()
    for thread in together(3, work):
        thread.join()
    assert caught == [fault, fault]
    with pytest.raises(BrokenOffError):
        sums.give(0, 2)
    sums.begin()
    sums.give(0, 2)


def test_no_gift_waits_for_another_instance() -> None:
    for name in registered():
        sums = made(name, 3)
        sums.begin()
        for bucket in range(4):
            sums.give(1, bucket)  # this one thread comes back from all
            sums.give(2, bucket)
        assert not sums.gather.is_complete


def test_a_thread_that_waits_for_the_sums_takes_a_bucket_that_is_summed() -> None:
    sums, waits, takers = made("server", 2), Event(), {}
    both = Barrier(2, timeout=900)  # two threads are in `summed` at once

    def owed(instance: int) -> list[Addition]:  # called under the lock, which the thread then leaves as it waits
        waits.set()
        return []

    def summed(bucket: int) -> None:
        takers[bucket] = threading.get_ident()
        if len(takers) <= 2:
            both.wait()

    def first(instance: int) -> None:
        for bucket in range(len(PARTS)):
            sums.give(instance, bucket)
        sums.gather.owed = owed
        sums.finish(instance)

    sums.summed = summed
    sums.begin()
    thread = Thread(target=first, args=(1,))
    thread.start()
    waits.wait()
    for bucket in range(len(PARTS)):
        sums.give(0, bucket)
    sums.finish(0)
    thread.join()
    assert set(takers) == set(range(len(PARTS))) and len(set(takers.values())) == 2


def test_buffers_that_do_not_fit_are_refused() -> None:
    kind, diffs = registered()["server"], list(gradients(2))
    gather = kind([0, 0], [9000])
    for given, error in (
        ((diffs[:1], [slice(0, 9000)]), "2 gradients"),
        (([diffs[0], diffs[1][:5]], [slice(0, 9000)]), "2 gradients"),
        (([diffs[0], diffs[0]], [slice(0, 9000)]), "needs memory of its own"),
        ((diffs, [slice(0, 8999)]), "other lengths"),
    ):
        with pytest.raises(ValueError, match=error):
            GradientSums(gather, *given)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_blocks_add_as_whole_arrays_do(count: int) -> None:
    sources = list(np.random.default_rng(5).normal(size=(count, 1001)).astype(np.float32))
    expected = sources[0].copy()
    for source in sources[1:]:
        expected = expected + source
    add(*sources, block=64)
    assert sources[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize(("size", "inner"), [(2, 0), (3, 0), (8, 5)])  # that are parents, but not the root
def test_what_its_additions_move(size: int, inner: int) -> None:
    slices, tree, server = (made(name, size) for name in ("slices", "tree:1", "server"))
    length = sum(LENGTHS)
    for _ in range(2):
        iterate(slices, size, seed=6)
        assert slices.moved == (size + 1) * length
    iterate(server, size, seed=6)
    assert (size + 1) * length <= server.moved <= (3 * size - 3) * length
    iterate(tree, size, seed=6)
    assert tree.moved == (size + 1 + 2 * inner) * length


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    iterate(made("slices", 4), 4, seed=5)
    assert set(threading.enumerate()) <= before
