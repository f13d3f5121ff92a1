"""The registry: a file that is added to the schedules is found by all that have to do with algorithms' names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from an_algorithm_of_ours import TRIDENT, added

from collectives import AlgorithmError, check_algorithm, make_schedule
from collectives.model.clusters import ETHERNET
from collectives.schedules import registry
from collectives.schedules.registry import algorithms, find, known, table
from collectives.schedules.schedule import StepKind
from collectives.simulation.check import check
from collectives.tuning.choosing import Candidate, candidates
from collectives.tuning.choosing import algorithms as tuned
from collectives.tuning.modelled import ModelledTimes
from collectives.tuning.table import Shape
from collectives.verbs import SCHEDULED as VERBS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/collectives.md"


@pytest.fixture
def trident(tmp_path: Path) -> Iterator[None]:
    algorithms()
    with added(tmp_path):
        yield
    assert "trident" not in known()


def test_an_added_file_has_a_name_for_every_verb(trident: None) -> None:
    for verb in ("reduce", "bcast", "allreduce"):
        check_algorithm(verb, "trident")
        check_algorithm(verb, "leaders-trident")
        with pytest.raises(AlgorithmError, match="known are .*trident"):
            check_algorithm(verb, "tripod")


def test_an_added_file_is_right_like_all_others(trident: None) -> None:
    kinds = [(verb, name) for verb in VERBS for each in algorithms(verb) for name in each.samples]
    assert ("reduce", "trident") in kinds and ("allreduce", "trident") in kinds
    for verb, name in kinds:
        for size in (1, 2, 5, 9, 14):
            check(make_schedule(verb, name, size, 11, chunk=3, root=size // 2))


def test_an_added_tree_s_letter_makes_hierarchies(trident: None) -> None:
    check(make_schedule("reduce", "cz-4", 23, 11, chunk=3))


def test_tuning_tries_an_added_algorithm_with_its_own_chunks(trident: None) -> None:
    for op in ("reduce", "bcast", "allreduce"):
        assert "trident" in tuned(op, Shape(8, 2, "tcp"), reaches=True)
    assert candidates(["trident", "leaders-trident"], None, 1 << 20) == [
        Candidate("trident", 12345),
        Candidate("leaders-trident", 12345),
    ]


def test_the_models_table_compares_an_added_algorithm_that_asks_for_it(tmp_path: Path) -> None:
    asking = (
        TRIDENT + "\n    def tabled(self, verb, ranks):\n        return () if verb == 'allreduce' else (self.name,)\n"
    )
    with added(tmp_path, asking):
        compared = {
            op: {each.algorithm for each in ModelledTimes(ETHERNET, Shape(8, 1, "tcp"), False, op, 1 << 20).seconds()}
            for op in VERBS
        }
    assert "trident" in compared["reduce"] & compared["bcast"]
    assert "mpi" in compared["allreduce"] and "trident" not in compared["allreduce"]


def test_help_model_and_documents_list_an_added_algorithm(trident: None) -> None:
    from collectives.bench.options import parser as bench
    from collectives.model.predicting import names_of
    from collectives.tune import parser as tune

    assert "trident" in names_of("reduce") and "trident" in names_of("allreduce")
    assert all("trident" in parser().format_help() for parser in (bench, tune))
    assert "| `trident` | reduce, bcast, allreduce | 3 n | a tree of ours |" in table()


def test_reduce_s_help_lists_every_algorithm(trident: None, capsys: pytest.CaptureFixture[str]) -> None:
    from scaffe.cli import main

    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "trident" in said and "cb-8:levels" in said


def test_the_names_of_two_algorithms_never_mean_one_of_them_silently(tmp_path: Path) -> None:
    algorithms()
    again = TRIDENT.replace('"trident"', '"chain"')
    with added(tmp_path, again, "again"), pytest.raises(ValueError, match="two algorithms have the name 'chain'"):
        algorithms()
    circulant = TRIDENT.replace('"trident"', '"circulant"').replace('"z"', '"c"')
    with added(tmp_path, circulant, "circulant"), pytest.raises(ValueError, match="c chain.*c circulant"):
        make_schedule("reduce", "cb-8", 16, 4)
    swallowing = TRIDENT + "\n    def takes(self, name):\n        return name == 'ring'\n"
    with added(tmp_path, swallowing, "swallowing"), pytest.raises(ValueError, match="'ring' is a name of two"):
        make_schedule("allreduce", "ring", 4, 4)
    check(make_schedule("reduce", "cb-8", 16, 4))


def test_every_example_is_found_and_of_its_own_algorithm() -> None:
    for verb in VERBS:
        for each in algorithms(verb):
            assert all(find(name, verb) is each for name in (*each.examples, *each.samples))


def test_neighbours_alone_are_those_that_send_to_the_next_rank_alone() -> None:
    for each in algorithms():
        steps = [make_schedule(each.verbs[0], each.samples[0], 17, 34, chunk=4).rank(rank) for rank in range(17)]
        distances = {(one.peer - r) % 17 for r, own in enumerate(steps) for one in own if one.kind is StepKind.SEND}
        assert each.neighbours == (len(distances) == 1), each.name


def test_the_documents_have_the_table_of_all_algorithms() -> None:
    assert table() in DOCUMENT.read_text(), "paste what `python -m collectives.schedules` prints"


def test_every_file_of_an_algorithm_registers_one() -> None:
    folder = Path(registry.__file__).parent
    registering = {path.stem for path in folder.glob("*.py") if "\n@register\n" in path.read_text()}
    assert registering == {type(each).__module__.rpartition(".")[2] for each in algorithms()}
