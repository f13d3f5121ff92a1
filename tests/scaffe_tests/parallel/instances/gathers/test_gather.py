"""What holds for all gathers: right sums, no race and no wait forever, in any order of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleavings import Interleaving, RaceError, at_random, exhaustive
from mutants import changed

import scaffe.parallel.instances.gathers  # noqa: F401  registers the gathers
from scaffe.errors import ScaffeError
from scaffe.parallel.instances.gathers import gather as gather_module
from scaffe.parallel.instances.gathers import server, slices, tree
from scaffe.parallel.instances.gathers.gather import Gather, find_gather, register, registered

pytestmark = pytest.mark.mpi_skip
Make = Callable[[Sequence[int], Sequence[int]], Gather]
MAKES: dict[str, Make] = {
    f"{name} {'deterministic' if fixed else ''}".strip(): partial(kind, deterministic=fixed)
    for name, kind in registered().items()
    for fixed in (False, True)
}
MAKES |= {f"tree:{k}": partial(registered()["tree"], number=k) for k in (1, 3)}
SMALL = [
    (1, [3]),
    (1, [40, 5]),
    (2, [40]),
    (2, [40, 5]),
    (3, [70]),
    (3, [70, 5]),
    (4, [70]),
    (2, [20, 40, 1]),
]  # instances, lengths
LARGE = [(3, [40, 33]), (5, [100, 16, 3, 17]), (8, [200, 7, 64]), (16, [300, 31])]


def gradients(size: int, lengths: Sequence[int], whole: bool) -> list[np.ndarray]:
    """Return random gradients; sums of `whole` ones are exact, so that no order of adding is seen in them."""
    rng = np.random.default_rng(size)
    shape = size, sum(lengths)
    values = rng.integers(-1000, 1000, shape) if whole else rng.normal(size=shape)
    return list(values.astype(np.float32))


def domains(size: int) -> list[int]:
    """Return a domain for each instance: two, the first with more."""
    return [2 * (i >= (size + 1) // 2) for i in range(size)]


def interleaving(
    make: Make, size: int, lengths: Sequence[int], whole: bool = True, shuffled: bool = False
) -> Callable[[Callable[[int], int]], np.ndarray]:
    """Return what runs one iteration by a made-up scheduler."""
    diffs, rng = gradients(size, lengths, whole), np.random.default_rng(size)
    last_first = list(reversed(range(len(lengths))))
    orders = [rng.permutation(len(lengths)).tolist() if shuffled else last_first for _ in diffs]
    return lambda choose: Interleaving(make(domains(size), lengths), diffs, orders).run(choose)


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize(("size", "lengths"), SMALL)
def test_sums_are_right_in_every_interleaving(name: str, size: int, lengths: list[int]) -> None:
    expected = np.sum(gradients(size, lengths, whole=True), axis=0)
    for sums in exhaustive(interleaving(MAKES[name], size, lengths)):
        np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize(("size", "lengths"), LARGE)
def test_sums_are_right_in_interleavings_at_random(name: str, size: int, lengths: list[int]) -> None:
    expected = np.sum(gradients(size, lengths, whole=True), axis=0)
    for shuffled in (False, True):
        run = interleaving(MAKES[name], size, lengths, shuffled=shuffled)
        for sums in at_random(run, seed=size, runs=40):
            np.testing.assert_array_equal(sums, expected)


@given(st.sampled_from(sorted(MAKES)), st.data())
def test_sums_are_right_for_any_domains_orders_and_schedule(name: str, data: st.DataObject) -> None:
    where = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=9), "domains")
    lengths = data.draw(st.lists(st.integers(1, 200), min_size=1, max_size=4), "lengths")
    orders = [data.draw(st.permutations(range(len(lengths))), "order") for _ in where]
    diffs = gradients(len(where), lengths, whole=True)
    seed = data.draw(st.integers(0, 1000), "schedule")
    for sums in at_random(Interleaving(MAKES[name](where, lengths), diffs, orders).run, seed, runs=1):
        np.testing.assert_array_equal(sums, np.sum(diffs, axis=0))


def bits(name: str, size: int, lengths: Sequence[int]) -> set[bytes]:
    run = interleaving(MAKES[name], size, lengths, whole=False, shuffled=True)
    return {sums.tobytes() for sums in at_random(run, seed=1, runs=40)}


@pytest.mark.parametrize("name", [name for name in MAKES if name != "server"])
def test_sums_have_the_same_bits_in_every_interleaving(name: str) -> None:
    assert len(bits(name, 5, [100, 16, 3])) == 1


def test_only_the_server_declares_that_its_sums_differ() -> None:
    assert [name for name, kind in registered().items() if not kind.repeats] == ["server"]
    assert len(bits("server", 5, [100, 16, 3])) > 1


MUTANTS: list[tuple[ModuleType, str, str]] = [
    (tree, "1 + len(children) for", "max(1, len(children)) for"),  # a parent does not wait for its own gradients
    (tree, "        if self._missing[bucket][node]:\n", "        if self._missing[bucket][node] > 1:\n"),
    (tree, "(node, *self.children[node])", "(node, *self.children[node][:1])"),
    (tree, "(node, *self.children[node])", "(*self.children[node], node)"),  # ends in another buffer
    (tree, "            self.complete[bucket] = True\n", "            pass\n"),
    (slices, "if self.all_given(bucket):", "if len(self._given[bucket]) >= self.size - 1:"),
    (slices, "        self._left[addition.bucket] -= 1\n", "        self._left[addition.bucket] = 0\n"),
    (slices, "cuts[i + 1], tuple", "min(length, cuts[i + 1] + 1), tuple"),  # slices overlap
    (slices, "cuts[i], cuts[i + 1], tuple", "cuts[i], cuts[i + 1], tuple(range(1, size)) or tuple"),
    (slices, "owed, self._owed[instance] = self._owed[instance], []", "owed = list(self._owed[instance])"),
    (slices, "for i, addition in self._slices[bucket]:", "for i, addition in self._slices[bucket][1:]:"),
    (server, "return [] if self._used[bucket] else self._next(bucket)", "return self._next(bucket)"),
    (server, "        self._used[bucket] = True\n", "        pass\n"),
    (server, "        self._used[bucket] = False\n        self._come", "        self._come"),
    (server, "return [] if self.complete[bucket] else self._next(bucket)", "return []"),
    (
        server,
        "        self._come[bucket].append(addition.target)\n",
        "        self._come[bucket] += addition.sources\n",
    ),
    (server, "sources, self._come[bucket] = sorted(self._come[bucket]), []", "sources = sorted(self._come[bucket])"),
    (server, "= sorted(self._come[bucket])", "= sorted(self._come[bucket], reverse=True)"),  # ends in another buffer
    (server, "self.all_given(bucket) and self._come[bucket] == [RESULT]", "RESULT in self._come[bucket]"),
    (server, "self.all_given(bucket) and self._come[bucket] == [RESULT]", "self.all_given(bucket)"),
    (server, "min(2, self.size)", "2"),  # one instance waits forever
]


@pytest.mark.parametrize(("module", "old", "new"), MUTANTS, ids=[f"{m[0].__name__[-6:]} {m[2][:30]}" for m in MUTANTS])
def test_a_gather_with_one_line_wrong_is_caught(
    module: ModuleType, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather_module, "register", lambda kind: None)
    wrong = changed(module, old, new)[module.__name__.rpartition(".")[2].capitalize() + "Gather"]
    with pytest.raises((RaceError, AssertionError)):
        for size in (4, 1):
            expected = np.sum(gradients(size, [70, 40], whole=True), axis=0)
            for sums in at_random(interleaving(wrong, size, [70, 40]), seed=2, runs=100):
                np.testing.assert_array_equal(sums, expected)


def test_an_order_of_adding_that_changes_is_seen_in_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_module, "register", lambda kind: None)
    by_arrival = changed(server, "if self.deterministic else", "if not self.deterministic else")["ServerGather"]
    monkeypatch.setitem(MAKES, "by arrival", partial(by_arrival, deterministic=True))
    assert len(bits("by arrival", 5, [100])) > 1


def test_a_bucket_is_given_once_in_an_iteration() -> None:
    for make in MAKES.values():
        gather = make([0, 0], [3, 4])
        gather.give(1, 0)
        with pytest.raises(ValueError, match="instance 1 has already given bucket 0"):
            gather.give(1, 0)
        gather.begin()
        gather.give(1, 0)


def test_a_bucket_without_elements_is_refused() -> None:
    with pytest.raises(ValueError, match="a bucket needs elements"):
        registered()["slices"]([0, 0], [3, 0])


def test_a_name_gives_its_gather_and_number() -> None:
    assert find_gather("tree:3") == (tree.TreeGather, 3)
    assert find_gather("tree") == (tree.TreeGather, 0)
    assert find_gather("slices") == (slices.SlicesGather, 0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ring", f"unknown gather 'ring'; known: {gather_module.known()}"),
        ("", "unknown gather ''"),
        ("tree:x", "unknown gather 'tree:x'"),
        ("tree:0", "gather 'tree:0': the number must be 1 or more"),
        ("slices:2", f"gather 'slices:2': slices takes no number; known: {gather_module.known()}"),
    ],
)
def test_a_wrong_name_is_an_error(text: str, error: str) -> None:
    with pytest.raises(ScaffeError, match=f"^{error}"):
        find_gather(text)


def test_errors_list_the_gathers_with_their_numbers() -> None:
    assert {"server", "slices", "tree:2"} <= {*gather_module.known().split(", ")}


def test_a_gather_needs_a_name_of_its_own() -> None:
    for name in ("", "auto", "tree"):
        with pytest.raises(ValueError, match="needs a name of its own"):
            register(type("Another", (Gather,), {"name": name}))
