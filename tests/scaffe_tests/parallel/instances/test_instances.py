from __future__ import annotations

from typing import Any

import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.instances.gathers.gather import known
from scaffe.parallel.instances.gathers.server import ServerGather
from scaffe.parallel.instances.gathers.tree import TreeGather
from scaffe.parallel.instances.instances import Instances
from scaffe.setting import settings_of

pytestmark = pytest.mark.mpi_skip


@pytest.mark.parametrize("n", ["1", "24", "numa", "core", "x:4", "auto"])
def test_what_instances_can_be(n: str) -> None:
    assert Instances(n).n == n


def test_a_number_is_taken_as_such() -> None:
    assert Instances(4) == Instances("4")  # type: ignore[arg-type]
    assert Instances(launch_delay=0.005) == Instances(launch_delay="0.005")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"n": n}, f"instances must be a number, numa, core, x:C such as x:4, or auto; got '{n}'")
        for n in (0, -1, "two", "", "x:0", "x:", "x:4:2", "1.5", 1.5, True, None, "١")
    ]
    + [
        ({"n": n}, f"instances must be 1024 or fewer, and x:C have 1024 cores or fewer; got '{n}'")
        for n in (1025, "10000", "x:1025", "9" * 5000)
    ]
    + [
        ({"gather": "ring"}, f"unknown gather 'ring'; known: {known()}"),
        ({"launch_groups": 0}, "launch_groups must be 1 or more, got 0"),
        ({"launch_delay": "soon"}, "launch_delay must be seconds such as 0.005, or auto; got 'soon'"),
        ({"launch_delay": -1}, "launch_delay must be seconds such as 0.005, or auto; got '-1'"),
        ({"launch_delay": 1e300}, "launch_delay must be seconds such as 0.005, or auto; got '1e+300'"),
        ({"launch_delay": "inf"}, "launch_delay must be seconds such as 0.005, or auto; got 'inf'"),
    ],
)
def test_another_value_is_an_error(given: dict[str, Any], error: str) -> None:
    with pytest.raises(ScaffeError) as caught:
        Instances(**given)
    assert str(caught.value) == error


def test_its_settings_have_flags_and_take_a_files_numbers() -> None:
    by_name = {one.name: one for one in settings_of(Instances)}
    assert [one.flag_name for one in by_name.values()] == [
        "instances", "gather", "launch-groups", "launch-delay", "oversubscribe",
    ]  # fmt: skip
    assert by_name["n"].from_file(4) == "4"
    assert by_name["launch_delay"].from_file(0.005) == "0.005"
    assert "tree:2" in by_name["gather"].text


def test_it_makes_its_gather() -> None:
    made = Instances(2, gather="tree:3").make_gather([0, 0], [5])  # type: ignore[arg-type]
    assert isinstance(made, TreeGather) and made.number == 3
    made = Instances(2, gather="server").make_gather([0, 0], [5], deterministic=True)  # type: ignore[arg-type]
    assert isinstance(made, ServerGather) and made.deterministic
