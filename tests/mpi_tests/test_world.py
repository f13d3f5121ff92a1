"""World: sums, work on the root, and errors that reach every rank."""

import re
import sys

import pytest
from mpi4py import MPI

from scaffe.errors import AgreedError, LaunchError, ScaffeError
from scaffe.parallel import world as worlds
from scaffe.parallel.hosts import crowding, describe, gpu_crowding
from scaffe.parallel.world import World

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def world():
    return World(MPI.COMM_WORLD.Dup())


def test_sums_are_over_all_ranks(world):
    assert world.allsum(world.rank + 1) == world.size * (world.size + 1) / 2
    assert list(world.allsums([1, world.rank == 0])) == [world.size, 1]


def test_the_roots_work_is_everyones_result(world):
    assert world.on_root(lambda: ("only", world.rank)) == ("only", 0)


def test_an_error_on_one_rank_is_raised_on_all(world):
    last = world.size - 1

    def work():
        if world.rank == last:
            raise ScaffeError("no such file")
        return "fine"

    with pytest.raises(ScaffeError, match="no such file" if world.size == 1 else f"rank {last}: no such file"):
        world.together(work)
    assert world.together(lambda: "fine") == "fine"


@pytest.mark.mpi(min_size=2)
def test_the_same_error_on_all_ranks_is_told_without_a_rank(world):
    def work():
        raise ScaffeError("no such file")

    with pytest.raises(AgreedError) as error:
        world.together(work)
    assert str(error.value) == "no such file"


def test_every_rank_is_described_once(world):
    text = "\n".join(describe(world))
    assert all(text.count(f"rank {rank} on cores ") == 1 for rank in range(world.size))


@pytest.mark.parametrize(
    ("cores", "places", "threads"),
    [
        ([0, 1], [("a", [0, 1])], 2),
        ([0, 1], [("a", [0, 1])] * 2, 1),
        ([0, 1], [("a", [0, 1])] * 5, 1),
        ([0, 1], [("a", [0, 1]), ("a", [2, 3])], 2),
        ([0, 1, 2, 3], [("a", [0, 1, 2, 3]), ("b", [0, 1, 2, 3])], 4),
    ],
)
def test_ranks_on_the_same_cores_share_them(cores, places, threads):
    assert worlds.fair_threads("a", cores, places) == threads


@pytest.mark.parametrize(("threads", "spare"), [(1, 3), (3, 1), (4, 1)])
def test_readers_get_the_cores_that_computing_leaves_and_one_at_least(monkeypatch, threads, spare):
    monkeypatch.setattr(worlds.os, "sched_getaffinity", lambda _: range(4 * MPI.COMM_WORLD.size))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    it = World(MPI.COMM_WORLD)  # 4 cores for each rank
    it.take_threads(threads)
    assert it.spare_cores == spare


def test_omp_num_threads_has_the_last_word(world, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert World(world.comm).threads == 3


def test_of_a_list_in_omp_num_threads_the_first_number_counts(world, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")
    assert World(world.comm).threads == 2


@pytest.mark.parametrize("text", ["1000000", "0", "-1", "many", "²"])
def test_nonsense_in_omp_num_threads_of_any_rank_is_an_error_on_all(world, monkeypatch, text):
    if world.rank == world.size - 1:
        monkeypatch.setenv("OMP_NUM_THREADS", text)
    with pytest.raises(ScaffeError, match=f"OMP_NUM_THREADS must be .*, got '?{text}"):
        World(world.comm)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "started 4 processes but each is alone.*not the same library"),
        ({"PMI_SIZE": "2"}, "started 2 processes"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}, "started 3 processes.*--mpi=pmi2"),
    ],
)
def test_singletons_under_a_launcher_are_noticed(monkeypatch, environment, said):
    for name in (*worlds._SIZES, "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    worlds._check_launcher(1)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=said):
        worlds._check_launcher(1)
    worlds._check_launcher(2)


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (MPI.THREAD_SINGLE, ["'single'.*not safe in a process with threads"]),
        (MPI.THREAD_FUNNELED, ["'funneled'.*sufficient"]),
        (MPI.THREAD_MULTIPLE, []),
    ],
)
def test_a_lower_thread_level_than_asked_for_is_told_by_the_root(monkeypatch, level, said):
    told = []
    monkeypatch.setattr(MPI, "Query_thread", lambda: level)
    monkeypatch.setattr(worlds, "_world", None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(worlds.logs.log, "warning", lambda text, *given: told.append(text % given))
    world = worlds.open_world()
    assert len(told) == len(said) * world.is_root
    assert all(re.search(*pair) for pair in zip(said, told, strict=False))


def test_more_threads_than_cores_are_told_once_a_node(world):
    fair = World(world.comm)
    fair.places = [("a", [0, 1]), ("a", [1, 0]), ("a", [2]), ("b", [0])]
    for rank, host, cores, threads, told in (
        (0, "a", [0, 1], 1, False),
        (0, "a", [0, 1], 2, True),
        (1, "a", [1, 0], 2, False),
        (2, "a", [2], 1, False),
        (3, "b", [0], 3, True),
    ):
        fair.rank, fair.host, fair.cores, fair.threads = rank, host, cores, threads
        assert bool(crowding(fair)) == told
    with pytest.raises(LaunchError, match="threads must be 1 to [0-9]+ on this machine, got -1"):
        fair.take_threads(-1)


class FakeGpu:
    """A GPU of which only its place on the PCI bus is known."""

    def __init__(self, bus):
        self.bus = bus


def test_ranks_that_share_a_gpu_are_told_once(world):
    sharing = World(world.comm)
    sharing.take_gpu(FakeGpu("0000:0a:00.0"))
    told = world.comm.allgather(gpu_crowding(sharing))
    names = sorted({place[0] for place in sharing.places})
    assert [bool(text) for text in told].count(True) == (len(names) if world.size > len(names) else 0)
    assert all("and the GPU at 0000:0a:00.0" in line for line in describe(sharing))
    sharing.take_gpu(FakeGpu(f"0000:{world.rank:02x}:00.0"))
    assert gpu_crowding(sharing) == ""


def test_where_one_rank_has_no_gpu_all_compute_on_the_cpu(world):
    mixed = World(world.comm)
    mixed.take_gpu(None if world.rank == world.size - 1 else FakeGpu("0000:0a:00.0"))
    assert mixed.gpu is None and gpu_crowding(mixed) == ""
