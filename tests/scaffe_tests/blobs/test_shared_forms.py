"""A form is made once for each version, by any of the threads that need it, and is complete when they get it."""

from __future__ import annotations

import gc
from collections import Counter
from threading import Barrier, Event, Thread, current_thread
from typing import Any

import numpy as np
import pytest

from scaffe.blobs.shared_forms import SharedForm, SharedForms

pytestmark = pytest.mark.mpi_skip
PARTS, STEP = 5, 16  # elements of a part
PATIENCE = 900.0  # seconds, for a thread that another one does not answer


def form_of(forms: SharedForms, parts: int = PARTS) -> SharedForm:
    return forms.of(np.zeros(4, np.float32), "blocked", parts * STEP, parts)


def in_threads(*works: Any) -> None:
    """Run functions, each in a thread of its own, and wait for all."""
    threads = [Thread(target=work, name=str(i), daemon=True) for i, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_each_part_is_made_once_for_each_version(size: int) -> None:
    form, made, seen, turns = form_of(SharedForms()), Counter[tuple[int, int]](), [], Barrier(size)

    def work() -> None:
        for version in range(1, 101):

            def make(part: int, version: int = version) -> None:
                made[version, part] += 1
                form.array[part * STEP : (part + 1) * STEP] = version

            form.complete(version, make)
            seen.append(np.all(form.array == version))
            turns.wait(PATIENCE)  # as the scheduler waits for all before it opens the next block

    in_threads(*[work] * size)
    assert len(seen) == 100 * size and all(seen)
    assert made == dict.fromkeys(((version, part) for version in range(1, 101) for part in range(PARTS)), 1)


def waiting(form: SharedForm, monkeypatch: pytest.MonkeyPatch) -> Event:
    """Return an event that is set once thread "1" finds all parts taken and waits."""
    event, wait_for = Event(), form._changed.wait_for

    def wait(predicate: Any) -> Any:
        if current_thread().name == "1" and not predicate():
            event.set()
        return wait_for(predicate)

    monkeypatch.setattr(form._changed, "wait_for", wait)
    return event


def test_who_needs_a_form_waits_for_the_part_that_another_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    form, begun, found = form_of(SharedForms(), 1), Event(), []
    waits = waiting(form, monkeypatch)

    def make(part: int) -> None:
        begun.set()
        assert waits.wait(PATIENCE)
        form.array[...] = 1

    def other() -> None:
        assert begun.wait(PATIENCE)
        form.complete(1, make)
        found.append(form.array.min())

    in_threads(lambda: form.complete(1, make), other)
    assert found == [1]


def test_a_part_whose_maker_fails_is_made_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    form, begun, made = form_of(SharedForms(), 1), Event(), []
    waits = waiting(form, monkeypatch)

    def fail(part: int) -> None:
        begun.set()
        assert waits.wait(PATIENCE)
        raise ValueError

    def failing() -> None:
        with pytest.raises(ValueError):
            form.complete(1, fail)

    def other() -> None:
        assert begun.wait(PATIENCE)
        form.complete(1, made.append)

    in_threads(failing, other)
    assert made == [0]


def test_a_block_that_ends_early_leaves_nothing_to_the_next() -> None:
    form, made = form_of(SharedForms()), []
    with pytest.raises(ZeroDivisionError):
        form.complete(1, lambda part: 1 / 0)
    form.complete(2, made.append)
    assert sorted(made) == list(range(PARTS))


def test_each_block_has_a_version_of_its_own_and_ends_with_an_error_too() -> None:
    forms, versions = SharedForms(), []
    for _ in range(3):
        with pytest.raises(ValueError), forms.keep():
            versions.append(forms.version)
            raise ValueError
        assert forms.version == 0
    assert len(set(versions)) == 3 and all(versions)


def test_nets_find_a_form_by_memory_and_layouts_while_one_uses_it() -> None:
    forms, flat = SharedForms(), np.zeros(8, np.float32)
    form = forms.of(flat[4:], ("plain", "blocked"), 4, 1)
    assert forms.of(flat[4:].reshape(2, 2), ("plain", "blocked"), 4, 1) is form
    assert forms.of(flat[4:], ("plain", "other"), 4, 1) is not form
    assert forms.of(flat, ("plain", "blocked"), 4, 1) is not form
    del form
    gc.collect()
    assert len(forms._forms) == 0


def test_in_a_lasting_block_a_form_is_made_anew_once_any_parameter_may_have_changed() -> None:
    forms, made, counts = SharedForms(), [], []
    form = form_of(forms, parts=1)
    for changes in (False, True, False):
        with forms.keep(persistent=True):
            form.complete(forms.version, made.append)
            if changes:
                forms.changed()
            form.complete(forms.version, made.append)
        counts.append(len(made))
    assert counts == [1, 2, 2]
