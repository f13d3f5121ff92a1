"""Open MPI tries no UCX for windows on a single node, unless the user has said something."""

import sys

import pytest

from collectives.open_mpi import quiet_windows

ONE_NODE = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (ONE_NODE, "^ucx"),
        (ONE_NODE | {"OMPI_COMM_WORLD_SIZE": "4"}, None),
        (ONE_NODE | {"OMPI_MCA_osc": "ucx"}, "ucx"),
        ({"PMI_SIZE": "2"}, None),
    ],
)
def test_ucx_is_left_out_where_it_cannot_work_and_nobody_has_said_otherwise(monkeypatch, given, found):
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    environment = dict(given)
    quiet_windows(environment)
    assert environment.get("OMPI_MCA_osc") == found


def test_after_the_start_of_mpi_nothing_is_set(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    environment = dict(ONE_NODE)
    quiet_windows(environment)
    assert environment == ONE_NODE
