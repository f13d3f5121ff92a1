"""Where threads and memory of nets and of a training lie, on the NUMA domains of this machine.

`jobs/lab/numa-vm.sh` runs these tests in virtual machines with 2 and with 4 domains.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nets
import numpy as np
import pytest
from domains import NEAR, alone, near, several_domains, threads_cores

import scaffe
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.engines.onednn.primitives import Memory
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.places import Place, place
from scaffe.parallel.instances.topology import Topology
from scaffe.training.solver import Solver

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(600)]  # an emulated machine is slow


@pytest.fixture(scope="module")
def topology() -> Topology:
    return several_domains()


MODEL = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 32 dim: 8 dim: 64 dim: 64 } shape { dim: 32 } data_filler { value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 16 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def memory_of(net: Net) -> list[np.ndarray]:
    """Return the memory of a net's blobs as it is; to read a blob's `data` or `diff` could write new memory."""
    values = [one for blob in net.blobs.values() for one in (blob.values, blob.diff_values)]
    plain = [one.array for one in values if one.array is not None]
    return plain + [one.form.buffer for one in values if isinstance(one.form, Memory)]


def test_a_net_s_openmp_team_and_memory_stay_in_its_domain(topology: Topology, tmp_path: Path) -> None:
    (path := tmp_path / "net.prototxt").write_text(MODEL)
    places = place("numa", topology)
    teams, parts = alone(nets_in_domains, path, places)
    assert teams == [[set(one.cores)] * (len(one.cores) - 1) for one in places]
    assert min(parts) >= NEAR


def nets_in_domains(path: Path, places: Sequence[Place]) -> tuple[list[list[set[int]]], list[float]]:
    """Run a net in each place. Return the cores of its team's threads, and the parts of its memory in its domain."""
    teams: list[list[set[int]]] = []
    parts: list[float] = []
    turns = [threading.Event() for _ in range(len(places) + 1)]
    turns[0].set()

    def work(instance: int) -> None:
        turns[instance].wait()  # one after the other, so that new threads are this instance's
        one, known = places[instance], threads_cores()
        net = Net(str(path), context=Context(scaffe.TRAIN, seed=5, compute=Compute(threads=len(one.cores))))
        net.forward()
        teams.append([cores for number, cores in threads_cores().items() if number not in known])
        parts.extend([near(one, [net.packed.data]), near(one, memory_of(net))])
        turns[instance + 1].set()

    with Crew(places) as crew:
        crew.run(work)
    return teams, parts


@dataclass(frozen=True)
class Trained:
    """By instance, the parts of a training's memory in the instance's domain.

    `copies` has the addresses of the weights' copies, `lines` the log.
    """

    weights: list[float]
    gradients: list[float]
    blobs: list[float]
    copies: set[int]
    lines: list[str]


@pytest.fixture(scope="module")
def trained(topology: Topology, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return alone(train, tmp_path_factory.mktemp("training") / "snap", place("numa", topology))


def train(prefix: Path, places: Sequence[Place]) -> Trained:
    """Train with an instance in each domain."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    solver = Solver(nets.solver_with(MODEL, snapshot_prefix=str(prefix)), instances=Instances("numa"))
    solver.step(2)
    print("\n".join(lines))
    pairs = list(zip(places, solver.nets, strict=True))
    found = Trained(
        [near(one, [net.packed.data]) for one, net in pairs],
        [near(one, [net.packed.diff]) for one, net in pairs],
        [near(one, memory_of(net)) for one, net in pairs],
        {net.packed.data.ctypes.data for net in solver.nets},
        lines,
    )
    solver.close()
    return found


def test_each_domain_has_a_copy_of_the_weights(trained: Trained) -> None:
    assert len(trained.copies) == len(trained.weights)
    assert min(trained.weights) >= NEAR


def test_an_instance_s_gradients_lie_in_its_domain(trained: Trained) -> None:
    assert min(trained.gradients) >= NEAR


def test_an_instance_s_blobs_lie_in_its_domain(trained: Trained) -> None:
    assert min(trained.blobs) >= NEAR


def test_the_log_says_where_instances_run_and_how_much_of_their_memory_lies_there(
    trained: Trained, topology: Topology
) -> None:
    said = [re.fullmatch(r"(instance .*), (\d+) % of [\d.]+ GB there", line) for line in trained.lines]
    found = {one[1]: int(one[2]) for one in said if one}
    assert list(found) == [str(one) for one in place("numa", topology)]
    assert min(found.values()) >= 100 * NEAR
