from __future__ import annotations

import pytest

from collectives import tune
from collectives.errors import ArgumentError, CollectiveError
from collectives.model.clusters import ETHERNET, INFINIBAND
from collectives.tuning.modelled import model_rows, shape_rows, shapes
from collectives.tuning.table import FABRIC, SHIPPED, TCP, Shape, Table, load

EIGHT = Shape(8, 1, TCP)
MEGABYTE = 1 << 20


@pytest.mark.parametrize("shape", [Shape(1, 4), EIGHT, Shape(4, 2, TCP), Shape(8, 4, FABRIC)], ids=str)
def test_the_shipped_table_is_what_the_model_says(shape):
    cluster = INFINIBAND if shape.network == FABRIC else ETHERNET
    stored = [row for row in load(SHIPPED).rows if (row.nodes, row.ranks, row.network) == shape]
    assert stored == shape_rows(cluster, shape)


def test_the_shipped_table_has_all_shapes_of_its_clusters():
    stored = {Shape(row.nodes, row.ranks, row.network) for row in load(SHIPPED).rows}
    assert stored == {*shapes(ETHERNET), *shapes(INFINIBAND)}


def test_the_model_leaves_small_messages_to_the_library_and_pipelines_large_ones_in_chunks_that_tcp_takes():
    table = Table(shape_rows(ETHERNET, EIGHT), "the model")
    for op in ("reduce", "bcast"):
        assert table.choose(op, EIGHT, True, 50_000).algorithm == "mpi"
        assert table.choose(op, EIGHT, True, 1 << 16).algorithm == "chain"
        choice = table.choose(op, EIGHT, True, 32 * MEGABYTE)
        assert choice.algorithm == "chain" and 16384 < choice.chunk_bytes <= ETHERNET.eager
    assert table.choose("allreduce", EIGHT, False, 32 * MEGABYTE).algorithm == "ring"


def test_a_cluster_described_for_schedules_only_gives_no_table():
    with pytest.raises(ArgumentError, match="cluster 'kesch' has no speed of its nodes' memory"):
        model_rows(["kesch"])
    with pytest.raises(CollectiveError, match="unknown cluster 'x'"):
        model_rows(["x"])


def test_the_command_tells_what_the_model_cannot(capsys, tmp_path):
    assert tune.main(["--from-model", "ethernet"]) == 2
    assert capsys.readouterr().err == "collectives.tune: --from-model needs --out FILE\n"
    assert tune.main(["--from-model", "kesch", "--out", str(tmp_path / "t.json")]) == 2
    assert "has no speed of its nodes' memory" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
