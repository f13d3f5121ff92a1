"""Programs of torch.distributed over the backend scaffe that go wrong: one line says which rank, and none hangs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaffe.parallel.mpi_library import FAULT_TOLERANT

pytestmark = [
    pytest.mark.mpi_skip,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch: pip install 'scaffe[torch]'"),
]

HEAD = """
import os, sys
from datetime import timedelta
import torch
import torch.distributed as dist
import collectives.torch
dist.init_process_group("scaffe", timeout=timedelta(seconds=TIMEOUT))
rank, store, x = dist.get_rank(), dist.group.WORLD.get_group_store(), torch.ones(4)
"""
WAITS = """
if rank == 0:
    try:
        dist.all_reduce(x)
    except dist.DistBackendError as error:
        print(error, flush=True)
    store.set("seen", "")
else:
    store.wait(["seen"], timedelta(seconds=60))
"""


WRONG = {
    ("WORLD_SIZE", "1"): "WORLD_SIZE is 1, but MPI has started 3; leave WORLD_SIZE unset, or start",
    ("RANK", "1"): "RANK is 1, 1, 1 on the 3 ranks that MPI has started; leave it unset, or give each",
    ("RANK", "one"): "RANK is 'one', no number",
}
WRONGLY = f"""
import os
import torch.distributed as dist
import collectives.torch
right = dict(os.environ)
for name, value in {[*WRONG]}:
    os.environ[name] = value
    try:
        dist.init_process_group("scaffe")
    except Exception as error:
        print(error, flush=True)
    os.environ.update(right)
"""
WELL = """
dist.all_reduce(x)
assert x.tolist() == [3.0] * 4 and dist.get_backend() == "scaffe"
print("rank", rank, dist.get_world_size(), *map(os.environ.get, ("RANK", "WORLD_SIZE", "LOCAL_RANK")), flush=True)
if rank:
    store.wait(["seen"], timedelta(seconds=60))
else:
    try:
        collectives.torch.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        print(error, flush=True)
    store.set("seen", "")
dist.destroy_process_group()
"""


def program(folder: Path, text: str, timeout: float = 60) -> Path:
    file = folder / "program.py"
    file.write_text(HEAD.replace("TIMEOUT", str(timeout)) + text)
    return file


@pytest.fixture(scope="module")
def done(mpirun, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Three ranks that go on after mistakes: their start takes longer than they do."""
    file = program(tmp_path_factory.mktemp("three"), WELL)
    file.write_text(WRONGLY + file.read_text())
    return mpirun(3, sys.executable, file)


def test_ranks_store_and_places_come_from_mpi(done) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    lines = sorted(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("rank "))
    assert [line[:4] for line in lines] == [[f"{rank}", "3", f"{rank}", "3"] for rank in range(3)]
    assert {line[4] for line in lines} == {"0", "1", "2"}


def test_the_environment_says_ranks_and_store_where_it_is_set(mpirun, tmp_path: Path) -> None:
    text = """
import socket
from mpi4py import MPI
free = socket.create_server(("127.0.0.1", 0))
port = MPI.COMM_WORLD.bcast(free.getsockname()[1])
free.close()
dist.destroy_process_group()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(1 - rank))
dist.init_process_group("scaffe", init_method="env://")
assert dist.get_rank() == 1 - rank
for root in range(2):
    dist.broadcast(x.fill_(dist.get_rank()), root)
    assert x.tolist() == [root] * 4
print("well")
dist.destroy_process_group()
"""
    done = mpirun(2, sys.executable, program(tmp_path, text))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "well\nwell\n")


@pytest.mark.parametrize("before", ["", "dist.all_reduce(x)\n"], ids=["the first call", "a later call"])
def test_a_rank_that_does_not_come_is_named(mpirun, tmp_path: Path, before: str) -> None:
    done = mpirun(2, sys.executable, program(tmp_path, before + WAITS, 3))
    assert "all_reduce: rank 0 has met its timeout in call" in done.stdout
    assert "; rank 1 is missing" in done.stdout


def test_a_monitored_barrier_names_the_ranks_that_do_not_come(done) -> None:
    assert "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms" in done.stdout


def test_a_rank_that_has_ended_is_named_long_before_the_time_is_over(mpirun, tmp_path: Path) -> None:
    text = """
dist.all_reduce(x)
if rank == 0:
    dist.all_reduce(x)
"""
    done = mpirun(2, sys.executable, program(tmp_path, text, 3600))
    assert done.returncode != 0
    assert "all_reduce: rank 0 waits, but rank 1 is no longer there" in done.stderr


def test_an_exception_on_one_rank_ends_the_job(mpirun, tmp_path: Path) -> None:
    text = """
if rank == 1:
    raise ValueError("the picture is damaged")
dist.all_reduce(x)
"""
    done = mpirun(2, sys.executable, program(tmp_path, text, 3600))
    assert done.returncode != 0
    assert "ValueError: the picture is damaged" in done.stderr
    assert "rank 1: ValueError ends the job" in done.stderr


@pytest.mark.parametrize("said", WRONG.values())
def test_what_the_environment_says_wrongly_is_an_error_on_all(done, said: str) -> None:
    assert done.stdout.count(said) == 3, done.stdout


def test_an_mpi_for_one_thread_at_a_time_is_an_error_on_all(mpirun, tmp_path: Path) -> None:
    file = program(tmp_path, "")
    file.write_text(f'import mpi4py\nmpi4py.rc.thread_level = "serialized"\n{file.read_text()}')
    done = mpirun(2, sys.executable, file)
    assert done.returncode != 0
    assert "an MPI that was started with MPI_THREAD_MULTIPLE" in done.stderr


def test_ranks_that_mpi_has_not_started_are_an_error(tmp_path: Path) -> None:
    started = ("OMPI_", "PMIX_", "PMI_", "PRTE_", FAULT_TOLERANT)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(started)}
    alone = {**plain, "RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    alone["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    text = (
        program(tmp_path, "")
        .read_text()
        .replace('"scaffe",', '"scaffe", store=dist.HashStore(), rank=0, world_size=4,')
    )
    done = subprocess.run([sys.executable, "-c", text], env=alone, capture_output=True, text=True, timeout=100)
    assert "4 ranks are asked for, but MPI has started 1; start the program by mpirun" in done.stderr
