"""Lab: start the ranks of a measurement, on this machine or on an emulated cluster (jobs/lab/netlab.sh)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figure import NotMeasurable

JOBS = Path(__file__).resolve().parents[1]
ROOT = JOBS.parent
NETLAB = str(JOBS / "lab/netlab.sh")
TIMEOUT = 900  # seconds of a start


def environment(**more: str) -> dict[str, str]:
    """Return the environment of ranks: this interpreter's, its packages, one thread of BLAS."""
    paths = [str(ROOT), str(JOBS / "bench"), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "SCAFFE_VENV": sys.prefix, "OMP_NUM_THREADS": "1"}
    own["NETLAB_ONE_SESSION"] = "1"
    return os.environ | own | {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"} | more


def output(*command: str, **more: str) -> str:
    """Return what a command prints. Raise RuntimeError with its last lines if it fails."""
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout.replace("\0", "")


def last_json(text: str) -> Any:
    """Return the value in the last line that rank 0 printed."""
    return json.loads(text.strip().splitlines()[-1])


def ranks(count: int, *program: str) -> Any:
    """Start `count` ranks of a Python program on this machine; return the JSON that it prints last."""
    command = str(JOBS / "mpirun.sh"), "-n", str(count), sys.executable, "-m", "mpi4py", *program
    return last_json(output(*command))


@contextmanager
def cluster(*arguments: str) -> Iterator[None]:
    """Have an emulated cluster: the arguments of `netlab.sh up`. Raise NotMeasurable where it can't be made."""
    if os.geteuid() != 0:
        raise NotMeasurable("an emulated cluster needs root")
    made = subprocess.run([NETLAB, "up", *arguments], capture_output=True, text=True)
    if made.returncode:
        raise NotMeasurable(f"no emulated cluster: {made.stderr.strip().splitlines()[-1]}")
    try:
        yield
    finally:
        subprocess.run([NETLAB, "down"], capture_output=True)


def on_nodes(per_node: int, *program: str) -> str:
    """Start ranks of a Python program on every node; return what they print."""
    return output(NETLAB, "run", "openmpi", str(per_node), sys.executable, "-m", "mpi4py", *program)
