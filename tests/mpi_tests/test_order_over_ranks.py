"""Shuffled records and bad ones: P ranks train as one does, go on where others stopped, and end together."""

import nets
import numpy as np
import pytest
from mpi4py import MPI

from readers import Reading, encode, write_lmdb
from scaffe.compute import Compute
from scaffe.errors import BadRecordsError
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
COUNT, BAD = 50, {0, 7, 8, 31}
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all ranks, with an LMDB of 50 records, four of them bad: epochs end in the middle of batches."""
    folder = COMM.bcast(tmp_path_factory.mktemp("order"))
    if COMM.rank == 0:
        images = np.random.RandomState(1).randint(0, 256, (COUNT, 1, 4, 4)).astype(np.uint8)
        values = [b"\xff" if n in BAD else encode(image, n % 10) for n, image in enumerate(images)]
        write_lmdb(folder / "db", [(b"%08d" % n, value) for n, value in enumerate(values)])
    COMM.Barrier()
    return folder


def train(folder, size, iterations, settings, resume=None, name=None):
    """Return on all ranks of the job the parameters, the keys of each batch and the counts over ranks, and a snapshot's
    path if it has a name, after training on `size` ranks."""
    comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
    result = None
    if comm != MPI.COMM_NULL:
        net = nets.softmax_regression(folder / "db", batch=12)
        param = nets.solver_with(net, snapshot_prefix=str(folder / (name or "none")), random_seed=3)
        solver = Solver(param, world=World(comm), compute=Compute(engine="reference"), reading=settings)
        if resume:
            solver.restore(resume)
        keys = []
        for _ in range(iterations):
            solver.step(1)
            keys += sum(comm.allgather(solver.net.layers[0].batch.keys), [])
        path = solver.snapshot() if name else None
        solver.parts.propagate.sync()
        counts = solver.world.allsums(solver.parts.bad_records.counts()).tolist()
        result = solver.net.packed.data.copy(), keys, counts, path
        solver.close()
        comm.Free()
    return COMM.bcast(result)


@pytest.mark.parametrize("shuffle", ["none", "full", "block:7"])
def test_ranks_pass_over_the_records_that_one_does_and_others_go_on(folder, shuffle):
    settings = Reading(shuffle=shuffle, bad_records="skip", max_bad_records=1)
    parameters, keys, counts, _ = train(folder, 1, 9, settings)
    assert not {b"%08d" % number for number in BAD} & {*keys}
    for first, then in ((COMM.size, COMM.size), (1, COMM.size), (COMM.size, 1)):
        _, before, counted, path = train(folder, first, 5, settings, name=f"{shuffle}{first}{then}")
        ours, after, more, _ = train(folder, then, 4, settings, resume=path)
        assert before + after == keys
        assert [a + b for a, b in zip(counted, more, strict=True)] == counts
        assert np.abs(ours - parameters).max() <= 1e-5 * np.abs(parameters).max()


def test_too_many_bad_records_end_all_ranks_at_the_same_iteration(folder):
    settings = Reading(bad_records="skip", max_bad_records=0.003)
    solver = Solver(nets.solver_with(nets.softmax_regression(folder / "db", batch=12)), reading=settings)
    try:
        with pytest.raises(BadRecordsError, match=r"4 of 16 records read so far are bad, more than 0.003 of 1000"):
            solver.step(9)
        assert solver.iter == 0
    finally:
        solver.close()
