"""PyTorch's own tests of torch.distributed, which come with its wheel, over the backend scaffe in one mpirun.

    jobs/mpirun.sh -n 4 python jobs/torch_suite.py [-k PART ...] [--backend gloo] [--list]

The suite starts processes of its own; here the ranks of MPI are its processes, and each test gets a process group of
its own. `scaffe` is named in the suite's table of features beside gloo, so that a test that gloo may run is run here
too. Rank 0 prints each test that fails and why the others are skipped; the exit code is 1 where one fails on any rank.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
import unittest
import warnings
from collections import Counter
from datetime import timedelta
from pathlib import Path

os.environ["BACKEND"] = "gloo"  # by which the suite decides what it may run, while it is imported

import torch
import torch.distributed as dist
from mpi4py import MPI

import collectives.torch  # noqa: F401

WORLD = MPI.COMM_WORLD
NO_GPU = "CUDA is not available."
NEEDS = {  # what tests lack that the suite doesn't skip by itself
    "test_ddp_has_finalized": "expects that the process is killed",
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_batch_isend_irecv_mixed_backend_err": "needs NCCL",
    "test_batch_isend_irecv_op_err": NO_GPU,
    **dict.fromkeys(
        (f"test_all_to_all{which}" for which in ("_cuda", "_cuda_complex", "_full_group_cuda", "_group_cuda")), NO_GPU
    ),
}
SECONDS = 100.0  # that a call may wait


class OnCpus(str):
    """A backend's name that equals gloo's: by that the suite asks whether tensors are on CPUs."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        """Return whether it is this name, or gloo's."""
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        """Return the contrary."""
        return not self == other


def main() -> int:
    """Run the tests; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", action="append", help="only tests with one of these parts in their names")
    parser.add_argument("--backend", default="scaffe")
    parser.add_argument("--list", action="store_true", help="print each test's outcome")
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    suite = load(a.backend)
    found: dict[str, str] = {}
    for name in sorted(one for one in dir(suite) if one.startswith("test_")):
        if a.k and not any(part in name for part in a.k):
            continue
        found[name] = run(suite, name, a.backend)
        if WORLD.rank == 0 and (a.list or found[name].startswith("failed")):
            print(f"{name}: {found[name]}", flush=True)
    if WORLD.rank == 0:
        print(summary(found, a.backend))
    return int(any(one.startswith("failed") for one in found.values()) or "passed" not in found.values())


def load(backend: str) -> type:
    """Return the suite's class of tests, with what its processes share."""
    folder = WORLD.bcast(tempfile.mkdtemp(prefix="torch_suite") if WORLD.rank == 0 else None)
    os.environ.update(TEMP_DIR=folder, WORLD_SIZE=str(WORLD.size), RANK=str(WORLD.rank))
    for name in ("barrier", "test_dir", "init_dir"):
        Path(folder, name).mkdir(exist_ok=True)
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    for feature in common_distributed.DistTestCases.backend_feature.values():
        feature.add(backend)
    distributed_test.BACKEND = OnCpus(backend)
    kinds = (distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase)
    return type(
        "Suite", kinds, {"timeouts": distributed_test.CUSTOM_PG_TIMEOUT, "codes": common_distributed.TEST_SKIPS}
    )


def run(suite: type, name: str, backend: str) -> str:
    """Return a test's outcome: the worst of all ranks."""
    one = suite(name)
    one.rank, one.file_name = WORLD.rank, ""
    if reason := NEEDS.get(name):
        return f"skipped: {reason}"
    dist.init_process_group(backend, timeout=timedelta(seconds=suite.timeouts.get(name, SECONDS)))
    torch.manual_seed(1234)
    try:
        dist.barrier()
        getattr(one, name)()
        outcome = "passed"
    except unittest.SkipTest as reason:
        outcome = f"skipped: {reason}"
    except SystemExit as end:
        messages = {skip.exit_code: skip.message for skip in suite.codes.values()}
        outcome = f"skipped: {messages[end.code]}" if end.code in messages else f"failed: exit code {end.code}"
    except Exception:
        outcome = f"failed: rank {WORLD.rank}: {traceback.format_exc()}"
    if outcome.startswith("failed") and hasattr(dist.group.WORLD, "leave"):
        dist.group.WORLD.leave()  # so that no rank waits for this one
    every = WORLD.allgather(outcome)
    if dist.is_initialized():
        dist.destroy_process_group()
    return next((one for kind in ("failed", "passed") for one in every if one.startswith(kind)), every[0])


def summary(found: dict[str, str], backend: str) -> str:
    """Return how many tests passed and failed, and why the others are skipped."""
    counts = Counter(one.partition(":")[0] for one in found.values())
    head = ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
    reasons = Counter(one.partition(": ")[2] for one in found.values() if one.startswith("skipped"))
    lines = [f"PyTorch {torch.__version__}, {backend}, {WORLD.size} ranks: {head}"]
    return "\n".join(lines + [f"{count:5} skipped: {reason}" for reason, count in reasons.most_common()])


if __name__ == "__main__":
    sys.exit(main())
