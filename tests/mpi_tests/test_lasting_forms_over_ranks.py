"""Receivers, and the NUMA domains of a rank, read the weights that have come, with forms of them that last."""

import nets
import numpy as np
import pytest
from both_engines import needs_bf16
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.engines.onednn import weights as forms
from scaffe.parallel.instances import team
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.topology import Domain, Topology, read_topology
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
ALL, NONE = 1 << 10, 1 << 40  # for weights.SMALL: weights of all layers have lasting forms, or those of none
pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.two_ranks, needs_bf16]
WAYS = {
    "SC-B": Run("SC-B", reduce="chain"),
    "SC-OB": Run("SC-OB", reduce="chain", drive="hook"),
    "SC-OBR": Run("SC-OBR", reduce="chain", drive="helper", bucket_bytes="64K"),
    "allreduce": Run("SC-OBR", reduce="chain", drive="hook", sync="allreduce"),
    "tried": Run("auto", reduce="chain"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "lasting")


def train(folder, run, n="1"):
    """Return the parameters of this rank after two steps, between which the root's are written."""
    compute, given = Compute("onednn", numbers="bf16", threads=1), Instances(n, gather="slices", oversubscribe=True)
    fields = {"test_iter": [3], "test_interval": 2, "iter_size": 2}
    param = nets.solver_with(nets.lenet(folder / "db", 13), **fields)
    solver, found = Solver(param, world=World(COMM), compute=compute, run=run, instances=given), []
    for _ in range(2):
        solver.step(5)
        found.append(np.concatenate([p.blob.data.reshape(-1) for p in solver.net.parameters]).tobytes())
        solver.net.params["ip1"][0].data[...] *= 1.5
    solver.close()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_what_is_received_is_read(folder, monkeypatch, way):
    found = []
    for small in (ALL, NONE):
        monkeypatch.setattr(forms, "SMALL", small)
        found.append(train(folder, WAYS[way]))
    assert found[0] == found[1]


def two_domains(cores=None):
    """Return a topology of two domains, each with one of this machine's cores."""
    found = read_topology().cores
    return Topology((Domain(0, found[:1]), Domain(1, found[-1:])))


@pytest.mark.parametrize("workflow", ["SC-B", "SC-OBR"])
def test_what_a_domain_has_copied_is_read(folder, monkeypatch, workflow):
    monkeypatch.setattr(team, "read_topology", two_domains)
    monkeypatch.setattr(team, "rank_cores", lambda masks, rank, topology: topology.cores)
    found = []
    for small in (ALL, NONE):
        monkeypatch.setattr(forms, "SMALL", small)
        found.append(train(folder, Run(workflow, reduce="chain"), "numa"))
    assert found[0] == found[1]
