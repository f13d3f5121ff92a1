"""Files of clusters: what they hold, and what is refused in a line."""

from __future__ import annotations

import re
from itertools import product
from math import isfinite
from pathlib import Path

import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.clusters import FOLDER, LEAST, MOST, UNITS, WHOLE, names

ROOT = Path(__file__).resolve().parents[3]
RATE = '{ value = 6e9, from = "stated", where = "" }'


@pytest.mark.parametrize("name", names())
def test_each_shipped_cluster_says_where_each_number_comes_from(name: str) -> None:
    cluster = find_cluster(name)
    assert cluster.about and set(cluster.quantities) <= set(UNITS)
    assert [key for key, quantity in cluster.quantities.items() if not quantity.where] == []


@pytest.mark.parametrize("name", names())
def test_the_documentation_names_what_is_fitted_and_assumed(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|.*\|(.*)\|(.*)\|$", (ROOT / "docs/simulate.md").read_text(), re.MULTILINE)
    quantities = find_cluster(name).quantities
    for origin, cell in zip(("fitted", "assumed"), row, strict=True):
        told = set(re.findall(r"\w+", cell.replace("which are unused", "")))
        assert told == {key for key, quantity in quantities.items() if quantity.origin == origin}, origin


def test_a_file_of_one_s_own_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text((FOLDER / "cluster-a.toml").read_text() + 'read = { value = 1e9, from = "measured" }\n')
    mine = find_cluster(file)
    assert mine.name == "mine" and mine.links.beta == find_cluster("cluster-a").links.beta
    assert mine.reading(32) == pytest.approx(1e9 / 16)  # a node's ranks share its rate


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("colour = 1", "unknown number 'colour'; known: nodes devices"),
        ("read = 6e9", "read must be { value"),
        ('read = { value = -1, from = "stated" }', "read must be a number, bytes a second"),
        ('read = { value = 1, from = "hearsay" }', "read is from 'hearsay'; known: stated, derived"),
        ('supernode = { value = 1.5, from = "stated" }', "supernode must be a whole number above 0"),
        ('read = { value = 1e-300, from = "stated" }', r"read, bytes a .*, must be from 1e-30 to 1e\+30; got 1e-300"),
        ('read = { value = 1e300, from = "stated" }', r"read, bytes a .*, must be from 1e-30 to 1e\+30; got 1e\+300"),
        ("read = ", "mine.toml: "),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, line: str, error: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text((FOLDER / "cluster-a.toml").read_text() + line + "\n")
    with pytest.raises(ScaffeError, match=error):
        find_cluster(file)


@pytest.mark.parametrize("value", [1e-300, 1e300])
@pytest.mark.parametrize("key", [key for key in UNITS if key not in WHOLE])
def test_a_number_whose_times_would_not_be_finite_is_refused_by_its_name(key: str, value: float) -> None:
    with pytest.raises(ScaffeError, match=f"cluster-a: {key}, .* must be from"):
        find_cluster("cluster-a").with_(**{key: value})


@pytest.mark.parametrize("ends", list(product((LEAST, MOST), repeat=2)), ids=str)
def test_the_least_and_the_most_give_finite_times(ends: tuple[float, float]) -> None:
    rate, seconds = ends
    values = {key: seconds if "seconds" in UNITS[key] else rate for key in UNITS if key not in WHOLE}
    values["oversubscription"], values["capacity"] = MOST, 0  # of memory there is enough
    one = simulate_iteration(
        "lenet", 3, find_cluster("cluster-a").with_(devices=1, **values), Run(reduce="chain"), batch=4
    )
    assert isfinite(one.seconds) and isfinite(one.rate) and one.seconds > 0


def test_some_leaders_of_a_node_are_refused() -> None:
    assert find_cluster("ndr").with_(leaders=8)["leaders"] == 8
    with pytest.raises(ScaffeError, match="ndr: leaders must be 1, or 8, all devices of a node; got 2"):
        find_cluster("ndr").with_(leaders=2)


def test_a_missing_number_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"nodes = {RATE}\n")
    with pytest.raises(ScaffeError, match="no 'devices', devices, one for each rank"):
        find_cluster(file)
