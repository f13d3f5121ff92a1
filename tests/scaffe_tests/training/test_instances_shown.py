"""What the log says of a run with several instances: what one with a single instance says, and where they are."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import bad_input
import nets
import pytest

from scaffe.compute import Compute
from scaffe.parallel.instances import memory
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.world import World, open_world
from scaffe.training.solver import Solver

pytestmark = pytest.mark.mpi_skip
SIZE = 3
GIVEN = Instances(SIZE, gather="tree:2", oversubscribe=True)
REDUCTION = """
layer { name: "total" type: "Reduction" bottom: "ip" top: "total" loss_weight: 0.1 }
layer { name: "rows" type: "Reduction" bottom: "ip" top: "rows" reduction_param { axis: 1 } }
"""

LEARNING = """
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bad_input.trainable(tmp_path, monkeypatch)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    """Run a solver; return the lines of its log."""
    open_world()  # which starts the log

    def run(instances: Instances, iterations: int = 2, **more: object) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "scaffe"):
            solver = Solver("solver.prototxt", instances=instances, **more)
            solver.step(iterations)
            solver.close()
        return [entry.getMessage() for entry in caplog.records]

    return run


def values(lines: list[str]) -> dict[str, list[float]]:
    """Return the train net's outputs of all displays, by name."""
    found = [re.search(r"Train net output #\d+: (\w+) = (\S+)", line) for line in lines]
    outputs = [(one[1], float(one[2])) for one in found if one]
    return {name: [value for other, value in outputs if other == name] for name, _ in outputs}


def test_outputs_that_are_sums_over_the_batch_are_those_of_one_instance(folder, lines) -> None:
    labelled = 'layer { name: "right" type: "Accuracy" bottom: "ip" bottom: "label" top: "right" }'
    (folder / "net.prototxt").write_text(bad_input.NET + labelled + REDUCTION)
    bad_input.edit("solver.prototxt", "max_iter", "display: 1 max_iter")
    one, several = values(lines(Instances())), values(lines(GIVEN))
    assert set(one) == set(several) == {"loss", "right", "total", "rows"}
    for name in ("loss", "right", "total"):
        assert several[name] == pytest.approx(one[name], rel=1e-4) and len(one[name]) == 2
    assert several["rows"][:2] == pytest.approx(one["rows"][:2], rel=1e-4)  # the rows of instance 0
    assert len(several["rows"]) == 2 * 2 < len(one["rows"])


def test_the_log_says_how_many_instances_divide_the_batch(folder, lines) -> None:
    several = lines(GIVEN)
    assert f"{SIZE} instances, gather tree:2, 1 thread(s) each" in several
    [batch] = [line for line in several if line.startswith("Global batch 8")]
    assert batch.endswith(f"strong scaling divides it over {SIZE} instances")
    [batch] = [line for line in lines(Instances()) if line.startswith("Global batch 8")]
    assert batch.endswith("strong scaling divides it over 1 rank(s)")


def test_after_the_first_iteration_each_instances_place_is_told_once(folder, lines) -> None:
    places = [line for line in lines(GIVEN, 3) if re.match(r"instance \d: domain \d+, cores? [\d,-]+(, \d+ %|;)", line)]
    assert [line.split(":")[0] for line in places] == [f"instance {i}" for i in range(SIZE)]
    assert not [line for line in lines(Instances()) if line.startswith("instance")]


def test_what_is_said_of_a_net_is_said_once(folder, lines) -> None:
    bad_input.edit("net.prototxt", "num_output: 10", "engine: CAFFE num_output: 10")
    (folder / "net.prototxt").write_text(nets.lenet("db").replace("kernel_size: 5", "engine: CAFFE kernel_size: 1"))
    one, several = lines(Instances(), 1), lines(GIVEN, 1)
    said = [line for line in one if "computes in numpy" in line]
    assert said and [line for line in several if "computes in numpy" in line] == said
    assert sum(line.startswith("Engine:") for line in several) <= 1


def test_the_memory_of_a_net_is_counted_once(folder) -> None:
    solver = Solver("solver.prototxt", compute=Compute(engine="reference"))
    solver.step(1)
    arrays = memory.arrays_of(solver.net)
    assert len({array.ctypes.data for array in arrays}) == len(arrays)
    ends = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays)
    assert all(end <= begin for (_, end), (begin, _) in zip(ends, ends[1:], strict=False))
    least = 2 * solver.net.packed.nbytes + solver.net.blobs["ip"].data.nbytes + solver.net.blobs["data"].data.nbytes
    assert sum(array.nbytes for array in arrays) >= least
    solver.close()


def test_more_threads_than_an_instance_has_cores_are_a_warning(folder, lines, monkeypatch) -> None:
    crowded = "instance 0 has 2 threads on 1 core(s)"
    assert [line for line in lines(GIVEN, compute=Compute(threads=2)) if line.startswith(crowded)]
    monkeypatch.setenv("OMP_NUM_THREADS", "64")  # of which several instances take no notice
    said = lines(GIVEN, world=World(open_world().comm))
    assert f"{SIZE} instances, gather tree:2, 1 thread(s) each" in said
    assert not [line for line in said if "wait for each other" in line]


def test_a_program_fills_the_inputs_of_each_instance(folder, lines) -> None:
    shapes = "shape { dim: 6 dim: 3 } shape { dim: 6 }"
    layer = f'layer {{ name: "in" type: "Input" top: "data" top: "label" input_param {{ {shapes} }} }}'
    (folder / "net.prototxt").write_text(bad_input.NET[: bad_input.NET.index("layer")] + layer + LEARNING)
    said = "layer 'in' (Input): fill its tops in each net of solver.nets; solver.net is the first instance's"
    assert said in lines(GIVEN)
    assert said not in lines(Instances())
