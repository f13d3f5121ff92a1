"""Settings: a record's field as a flag's value, a file's value, and a keyword that has moved."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaffe.errors import ScaffeError
from scaffe.setting import (
    Setting,
    check_fields,
    check_record,
    moved,
    parse_bytes,
    parse_share,
    setting,
    settings_of,
    with_flags,
)


@dataclass(frozen=True)
class Sail:
    """A record."""

    masts: int = setting(2, "number of masts", metavar="N")
    area: float = setting(9.5, "square metres", flag="sail-area", parse=lambda given: given * 2)
    rig: str = setting("gaff", "shape", names=lambda: "gaff, square", choices=lambda: ("gaff", "square"), rare=True)
    reefed: bool = setting(False, "whether it is reefed")


def test_a_setting_is_named_alike_as_a_key_and_a_flag_unless_it_has_a_flags_name() -> None:
    masts, area, rig, reefed = settings_of(Sail)
    assert (masts.key, masts.flag_name, masts.destination) == ("masts", "masts", "masts")
    assert (area.key, area.flag_name, area.destination) == ("area", "sail-area", "sail_area")
    assert (rig.text, tuple(rig.values), rig.rare) == ("shape: gaff, square", ("gaff", "square"), True)
    assert [one.shown for one in (masts, area, rig, reefed)] == ["2", "9.5", "gaff", "false"]


def test_flags_replace_the_fields_that_they_name() -> None:
    given = {"masts": None, "sail_area": 3.0, "area": 100.0, "reefed": True, "rudder": 1}
    assert with_flags(Sail(masts=5), given) == Sail(masts=5, area=3.0, reefed=True)


@pytest.mark.parametrize(("name", "given", "value"), [("masts", 3, 3), ("area", 4, 8.0), ("reefed", True, True)])
def test_a_files_value_becomes_the_fields(name: str, given: object, value: object) -> None:
    one = next(one for one in settings_of(Sail) if one.name == name)
    assert one.from_file(given) == value
    assert type(one.from_file(given)) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("masts", 1.5, "masts must be a whole number, got 1.5"),
        ("masts", True, "masts must be a whole number, got True"),
        ("area", "wide", "area must be a number, got 'wide'"),
        ("reefed", 1, "reefed must be true or false, got 1"),
        ("rig", 3, "rig must be a string, got 3"),
    ],
)
def test_a_files_value_of_another_type_is_an_error(name: str, given: object, said: str) -> None:
    one = next(one for one in settings_of(Sail) if one.name == name)
    with pytest.raises(ScaffeError) as caught:
        one.from_file(given)
    assert str(caught.value) == said


def test_a_value_that_parse_refuses_is_an_error_with_its_key() -> None:
    def parse(given: Any) -> Any:
        raise ValueError(f"no number: {given}")

    with pytest.raises(ScaffeError, match="^top-speed: no number: fast$"):
        Setting("top_speed", 1, "knots", parse=parse).from_file("fast")


@dataclass(frozen=True)
class Boat:
    """A record that checks its fields."""

    oars: int = setting(2, "number of oars")
    length: float = setting(9.5, "metres", parse=lambda given: float(str(given).removesuffix("m")))
    name: str = setting("", "what it is called")
    leaks: bool = setting(False, "whether it leaks")

    def __post_init__(self) -> None:
        check_fields(self, Boat)


def test_a_records_values_become_those_of_its_fields() -> None:
    boat = Boat(oars=np.int64(4), length=10, name=Path("Vasa"))
    assert [repr(value) for value in vars(boat).values()] == ["4", "10.0", "'Vasa'", "False"]
    assert Boat(length="8m") == Boat(length=8.0)  # type: ignore[arg-type]
    assert Boat(length=10**400).length == inf


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oars": "4"}, "oars must be a whole number, got '4'"),
        ({"oars": 2.5}, "oars must be a whole number, got 2.5"),
        ({"oars": True}, "oars must be a whole number, got True"),
        ({"name": None}, "name must be a string, got None"),
        ({"leaks": "no"}, "leaks must be true or false, got 'no'"),
        ({"leaks": 1}, "leaks must be true or false, got 1"),
        ({"length": "long"}, "length: could not convert string to float: 'long'"),
    ],
)
def test_a_records_value_of_another_type_is_an_error(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ScaffeError) as caught:
        Boat(**given)
    assert str(caught.value) == said


def test_a_keyword_that_has_moved_is_an_error_that_names_the_new_one() -> None:
    @moved({"masts": "sail=Sail(masts=...)"})
    def launch(name: str, *, sail: Sail) -> str:
        return f"{name} {sail.masts}"

    assert launch("Vasa", sail=Sail(masts=3)) == "Vasa 3"
    with pytest.raises(ScaffeError, match=r"^masts= has moved: write sail=Sail\(masts=\.\.\.\)$"):
        launch("Vasa", masts=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="oars"):
        launch("Vasa", sail=Sail(), oars=3)  # type: ignore[call-arg]


def test_a_record_of_another_kind_is_an_error() -> None:
    check_record("sail", Sail(), Sail)
    with pytest.raises(ScaffeError, match=r"^sail= takes a record, Sail\(\.\.\.\), got 'gaff'$"):
        check_record("sail", "gaff", Sail)


def test_bytes_have_units() -> None:
    assert [parse_bytes(text) for text in ("0", "7", "64K", "4m", "1G", "inf")] == [0, 7, 65536, 4 << 20, 1 << 30, inf]
    for text in ("", "few", "-1", "nan", "4T"):
        with pytest.raises(ValueError):
            parse_bytes(text)


@pytest.mark.parametrize(("given", "share"), [("3%", 0.03), ("0.5 %", 0.005), ("0.2", 0.2), (0.25, 0.25)])
def test_a_share_is_given_in_percent_or_as_a_number(given, share):
    assert parse_share(given) == pytest.approx(share)
