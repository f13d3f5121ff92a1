"""Supernodes over MPI: ranks pretend to be on hosts of their own, and what they really send across is counted."""

import nets
import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, Communicator, DisagreementError, Group, bench, supernodes
from collectives.execution.transport import HostTransport
from collectives.supernodes import as_text
from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

pytestmark = pytest.mark.mpi(min_size=2)
COMM = MPI.COMM_WORLD
TURNS = ";".join(",".join(f"n{rank}" for rank in range(COMM.size) if rank % 2 == odd) for odd in (0, 1))
HALVES = [[f"n{rank}" for rank in range(COMM.size) if (rank < COMM.size // 2) == low] for low in (True, False)]


@pytest.fixture(autouse=True)
def hosts(monkeypatch):
    """Let each rank be on a host of its own."""
    monkeypatch.setattr(supernodes, "gethostname", lambda: f"n{COMM.rank}")
    monkeypatch.setattr(Group, "from_comm", lambda comm: Group.uniform(comm.size))


@pytest.fixture
def sent(monkeypatch):
    """Return the bytes that this rank has sent to each rank by schedules."""
    found = [0] * COMM.size
    send = HostTransport.send

    def counting(memory, comm, message, peer, tag, told):
        found[peer] += message[0].nbytes
        return send(memory, comm, message, peer, tag, told)

    monkeypatch.setattr(HostTransport, "send", counting)
    return found


def across(sent, group):
    """Return the bytes that all ranks have sent to other supernodes."""
    mine = group.supernodes[COMM.rank]
    return COMM.allreduce(sum(n for n, other in zip(sent, group.supernodes, strict=True) if other != mine))


@pytest.mark.parametrize("told", [TURNS, HALVES, r"n(\d)"], ids=["turns", "halves", "alone"])
@pytest.mark.parametrize(("what", "algorithm"), [("allreduce", "halving"), ("reduce", "chain"), ("bcast", "chain")])
def test_what_crosses_is_what_explain_says(sent, told, what, algorithm):
    comm = Communicator(COMM, supernodes=told)
    array = np.full(1200, comm.rank, np.float32)
    said = comm.explain(what, array.nbytes, algorithm=algorithm)
    assert len(set(COMM.allgather(said))) == 1
    getattr(comm, what)(array, algorithm=algorithm, chunk_bytes=256)
    if what != "bcast":
        assert comm.rank or (array == sum(range(comm.size))).all()
    assert f"{len(set(comm.group.supernodes))} supernodes; {across(sent, comm.group)} bytes cross them" in said
    comm.free()


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(
    ("sync", "reduce", "told", "least"), [("reduce-bcast", "chain", TURNS, 3), ("allreduce", "halving", HALVES, 4)]
)
def test_training_sends_less_across(sent, tmp_path_factory, caplog, sync, reduce, told, least):
    if COMM.size < least:
        pytest.skip(f"{reduce} crosses as often in any order of fewer than {least} ranks")
    folder = nets.shared_folder(COMM, tmp_path_factory, "supernodes")
    param = nets.solver_with(nets.tower(folder / "db"), base_lr=0.1)
    group = Communicator(COMM, supernodes=told).group
    crossed, parameters = [], []
    for each in ("", as_text(told)):
        run = Run(sync=sync, reduce=reduce, supernodes=each)
        with caplog.at_level("INFO"):
            solver = Solver(param, world=World(COMM), compute=Compute(engine="reference"), run=run)
        assert solver.parts.collectives.group.supernodes == (group.supernodes if each else (0,) * COMM.size)
        sent[:] = [0] * COMM.size
        solver.step(3)
        solver.parts.propagate.sync()
        crossed.append(across(sent, group))
        parameters.append(solver.net.packed.data.copy())
        solver.close()
    assert 0 < crossed[1] <= crossed[0] / 2
    np.testing.assert_allclose(parameters[1], parameters[0], rtol=1e-4, atol=1e-6)
    assert COMM.rank or "Supernodes: " in caplog.text


def test_the_benchmark_numbers_its_ranks_so_too(capsys):
    options = ["-m", "4096:4096", "-i", "3", "-x", "1", "-c", "--algorithm", "halving,mpi", "--supernodes", TURNS]
    assert bench.main(["allreduce", *options]) == 0
    last = capsys.readouterr().out.splitlines()[-2:]
    if COMM.rank == 0:
        assert last[0].startswith("# allreduce of 4096 bytes") and "2 supernodes; " in last[0]
        assert last[1].startswith("# allreduce of 4096 bytes") and last[1].endswith("mpi, as asked")


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        ("n0;n0,n1", ArgumentError, "host n0 is in two of them"),
        ("n0", ArgumentError, "rank 1: supernodes: host n1 is in none of 'n0'"),
        ("n(.*", ArgumentError, "is invalid: missing"),
        ("slurm", ArgumentError, "SLURM_TOPOLOGY_ADDR and ..._ADDR_PATTERN are not set"),
        (lambda: f"n{COMM.rank}", DisagreementError, "differ in the supernodes: rank 0 has 'n0', rank 1 has 'n1'"),
    ],
)
def test_nonsense_is_an_error_on_all_ranks(monkeypatch, told, error, said):
    monkeypatch.delenv("SLURM_TOPOLOGY_ADDR", raising=False)
    with pytest.raises(error, match=said):
        Communicator(COMM, supernodes=told() if callable(told) else told)


def test_a_node_in_two_is_an_error_on_all_ranks():
    with pytest.raises(
        ArgumentError, match="supernodes: ranks 0 and 1 share a node, but are in two supernodes: '0' and '1'"
    ):
        Communicator(COMM, group=Group.of([0] * COMM.size), supernodes=r"n(\d)")


def test_slurm_says_so_for_each_rank(monkeypatch):
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR", f"top.leaf{COMM.rank % 2}.n{COMM.rank}")
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node")
    comm = Communicator(COMM, supernodes="slurm")
    assert comm.group.supernodes == tuple(rank % 2 for rank in range(COMM.size))
    comm.free()


def test_an_algorithm_that_is_none_is_an_error_on_all_ranks():
    comm = Communicator(COMM, supernodes=TURNS)
    with pytest.raises(Exception, match="unknown algorithm 'magic'"):
        comm.explain("reduce", 100, algorithm="magic")
    comm.free()
