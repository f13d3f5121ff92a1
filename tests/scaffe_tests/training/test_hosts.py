"""Hosts: the command of the next try, without the hosts that are lost."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from scaffe.errors import RanksLostError
from scaffe.training import hosts
from scaffe.training.hosts import Hosts, named

JOB = "scaffe", "train", "-n", "--host"


def made(*launcher: str, silent: str = "", environment: dict[str, str] | None = None, **given) -> Hosts:
    return Hosts([*launcher, *JOB], silent=lambda present: {*silent.split()}, environment=environment or {}, **given)


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (b"  Remote daemon: [prterun-nl0-23475@0,1] on node nl1", "nl1"),
        (b"  Remote host:   nl1.lab", "nl1.lab"),
        (b"srun: error: Node failure on n-1", "n-1"),
        (b"  HNP daemon   : [prterun-nl0-23475@0,0] on node nl0", ""),
    ],
)
def test_a_launchers_line_names_the_host_that_it_has_lost(line: bytes, host: str) -> None:
    assert named(line) == host


@pytest.mark.parametrize(
    ("launcher", "left", "text"),
    [
        (["mpirun", "-H", "a:2,b:2,c", "-n", "4"], ["mpirun", "-H", "a:2,c", "-n", "3"], "3 of 4"),
        (["mpirun", "-H", "a:2,b:2"], ["mpirun", "-H", "a:2"], "2 of 4"),
        (["mpirun", "-host", "a:4,b:4", "-np", "3"], ["mpirun", "-host", "a:4", "-np", "3"], "3 of 3"),
        (["mpirun", "-n", "8", "-hosts", "a,b"], ["mpirun", "-n", "4", "-hosts", "a"], "4 of 8"),
    ],
)
def test_a_lost_host_is_taken_out_of_the_host_list(launcher, left, text) -> None:
    given = made(*launcher)
    assert given.drop({"b"}) == f"without b {text} rank(s) are left"
    assert given.command == [*left, *JOB]


def test_a_host_file_is_written_without_it(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2 # first\nb slots=2\n\nc:3\n")
    given = made("mpirun", "--hostfile", str(tmp_path / "hosts"))
    assert given.drop({"b"}) == "without b 5 of 7 rank(s) are left"
    assert Path(given.command[2]).read_text() == "a slots=2 # first\n\nc:3\n"
    assert given.drop({"a"}) == "without a 3 of 5 rank(s) are left"
    assert Path(given.command[2]).read_text() == "\nc:3\n"


def test_slurms_allocation_without_it(monkeypatch) -> None:
    monkeypatch.setattr(hosts, "_output", lambda *command: "n0\nn1\nn2\n")
    environment = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[0-2]", "SLURM_TASKS_PER_NODE": "2(x2),1"}
    given = made("mpirun", environment=environment)
    assert given.drop({"n1"}) == "without n1 3 of 5 rank(s) are left"
    assert given.command == ["mpirun", "--host", "n0:2,n2:1", *JOB]
    given = made("srun", "--mpi=pmi2", environment=environment | {"SLURM_NTASKS": "5"})
    given.drop({"n1"})
    assert given.command == ["srun", "--exclude=n1", "--nodes=2", "--ntasks=3", "--mpi=pmi2", *JOB]
    given.drop({"n2"})
    assert given.command == ["srun", "--exclude=n1,n2", "--nodes=1", "--ntasks=2", "--mpi=pmi2", *JOB]
    given = made("srun", environment=environment | {"SLURM_NTASKS": "2"})
    assert given.drop({"n1"}) == "without n1 2 of 2 rank(s) are left"


def test_a_host_that_is_silent_is_lost_where_the_launcher_names_none() -> None:
    given = made("mpirun", "-H", "a,b,c", silent="c", weak=True)
    assert given.drop(()).startswith("without c 2 of 3 rank(s) are left; the global batch shrinks")
    assert given.drop(()) == "", "it is lost already"
    assert made("mpirun", "-H", "a,b", silent="a b").drop(()) == ""
    assert made("mpirun", "-n", "2").drop({"elsewhere"}) == ""


def test_fewer_ranks_than_asked_for_are_an_error() -> None:
    with pytest.raises(RanksLostError, match=r"without b 2 of 4 rank\(s\) are left, fewer than --min-ranks 3"):
        made("mpirun", "-H", "a:2,b:2", min_ranks=3).drop({"b"})
    assert made("mpirun", "-H", "a:2,b:2", min_ranks=2).drop({"b"})


def test_a_host_that_refuses_a_connection_or_has_no_address_answers(monkeypatch) -> None:
    errors = {"down": TimeoutError, "up": ConnectionRefusedError, "cut": OSError, "alias": socket.gaierror}

    def connect(address, seconds):
        raise errors[address[0]]

    monkeypatch.setattr(hosts.socket, "create_connection", connect)
    assert hosts.unreachable([*errors]) == {"down", "cut"}
    assert hosts.unreachable(["down", "cut"]) == set(), "a firewall, more likely"
    assert hosts.unreachable(["localhost", "down"]) == {"down"}, "of two hosts this one is not asked"


def test_slurm_says_which_hosts_are_down(monkeypatch) -> None:
    monkeypatch.setattr(hosts, "_output", lambda *command: "n0 alloc\nn1 down\nn2 alloc*\n")
    assert hosts.down(["n0", "n1", "n2"]) == {"n1", "n2"}
