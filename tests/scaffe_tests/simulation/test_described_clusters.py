"""Files of clusters: what they hold, and what is refused in a line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scaffe.errors import ScaffeError
from scaffe.simulation import find_cluster
from scaffe.simulation.clusters import FOLDER, UNITS, names

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
        ("read = ", "mine.toml: "),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, line: str, error: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text((FOLDER / "cluster-a.toml").read_text() + line + "\n")
    with pytest.raises(ScaffeError, match=error):
        find_cluster(file)


def test_a_missing_number_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"nodes = {RATE}\n")
    with pytest.raises(ScaffeError, match="no 'devices', devices, one for each rank"):
        find_cluster(file)
