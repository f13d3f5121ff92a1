"""Reading: a value of another type is an error where the record is made, not in a reader's thread."""

from __future__ import annotations

from typing import Any

import pytest

from readers import ReaderError, Reading


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prefetch": "2"}, "prefetch must be a whole number, got '2'"),
        ({"prefetch": 1.5}, "prefetch must be a whole number, got 1.5"),
        ({"threads": True}, "threads must be a whole number, got True"),
        ({"shuffle": None}, "shuffle must be a string, got None"),
        ({"max_bad_records": "0.1"}, "max_bad_records must be a number, got '0.1'"),
        ({"prefetch": -1}, "prefetch must be 0 or more, got -1"),
    ],
)
def test_a_wrong_value_is_an_error(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ReaderError) as caught:
        Reading(**given)
    assert str(caught.value) == said


def test_a_whole_number_is_a_fraction_too() -> None:
    assert Reading(max_bad_records=1) == Reading(max_bad_records=1.0)
