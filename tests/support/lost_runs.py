"""Trainings of a small net some of whose ranks are lost, and the same in stages without a loss, to compare with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from select import select

import nets
from patience import patient

SECONDS = 60
END = 9  # iterations
RANKS = 4  # the most of stages
DYING = Path(__file__).with_name("dying.py")
DATA = """
layer {{ name: "images" type: "Data" top: "data" top: "label" include {{ phase: {phase} }}
  transform_param {{ scale: 0.004 crop_size: 9 mirror: true }}
  data_param {{ source: "{source}" batch_size: 12 backend: LMDB }} }}
"""
LAYERS = """
name: "lost"
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "norm" batch_norm_param { moving_average_fraction: 0.7 } }
layer { name: "ip1" type: "InnerProduct" bottom: "norm" top: "ip1"
  inner_product_param { num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""


class Undisturbed:
    """Four ranks that train in stages, each time they are asked to: most of such a training's time is the start.

    Four more for each text of moments: they have stand-ins for GPUs, or callbacks.
    """

    def __init__(self, mpirun, folder: Path):
        self.mpirun, self.log = mpirun, folder / "log"
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def train(self, folder: Path, stages: str, *flags: object, moments: str = "") -> None:
        """Train by the solver file in a folder."""
        if moments not in self.processes:
            command = sys.executable, "-m", "mpi4py", DYING, moments, "asked"
            with self.log.open("a") as log:
                self.processes[moments] = self.mpirun.start(RANKS, *command, stdin=subprocess.PIPE, stderr=log)
        process = self.processes[moments]
        print(json.dumps([str(folder), stages, *map(str, flags)]), file=process.stdin, flush=True)
        patient(lambda seconds: bool(select([process.stdout], [], [], seconds)[0]), SECONDS) or process.terminate()
        if process.stdout.readline() != "done\n":
            self.close()
            raise AssertionError(self.log.read_text())

    def close(self) -> None:
        """End the ranks."""
        while self.processes:
            self.processes.popitem()[1].communicate("\n")


class Runs:
    """Trainings of a small net in a folder: with ranks that are lost, and the same in stages without any loss."""

    def __init__(self, mpirun, folder: Path, images: Path, undisturbed: Undisturbed):
        self.mpirun, self.folder, self.undisturbed = mpirun, folder, undisturbed
        self.net = "".join(DATA.format(phase=phase, source=images) for phase in ("TRAIN", "TEST")) + LAYERS

    def write(self, name: str, end: object, fields: dict[str, object]) -> Path:
        """Write the solver file of a run to a folder of its own, which is returned."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for earlier in folder.glob("snap*"):
            earlier.unlink()
        path = nets.write_solver(
            folder, self.net, max_iter=END, snapshot_after_train=True, snapshot_prefix="snap", **fields
        )
        path.write_text(path.read_text().replace(f"max_iter: {END}\n", f"max_iter: {end}\n"))
        return folder

    def losing(self, ranks: int, moments: str, *flags: object, **fields):
        """Return the process of a run with these moments, and its last weights and state."""
        folder = self.write("losing", END, fields)
        command = sys.executable, "-m", "mpi4py", DYING, moments, "train", "--solver", "solver.prototxt"
        shrink = "--on-rank-loss", "shrink"
        result = self.mpirun(ranks, "--with-ft", "ulfm", *command, *shrink, *flags, cwd=folder, timeout=SECONDS)
        return result, files(folder)

    def stages(self, stages: str, *flags: object, moments: str = "", **fields):
        """Return the last weights and state of a run in stages: "4,0,5 3,5,9" of 4 ranks to iteration 5, then 3."""
        folder = self.write("stages", "END", fields)
        self.undisturbed.train(folder, stages, *flags, moments=moments)
        return files(folder)


def files(folder: Path) -> list[bytes]:
    """Return the last weights and state, b"" for those that are not there."""
    paths = [folder / f"snap_iter_{END}.{kind}" for kind in ("caffemodel", "solverstate")]
    return [path.read_bytes() if path.exists() else b"" for path in paths]


def recoveries(result) -> list[tuple[int, int, int]]:
    """Return, of each recovery, how many ranks were left, their iteration, and how many iterations were redone."""
    said = r"Ranks left: (\d+); they go on at iteration (\d+) after \S+ s; iterations redone: (\d+)"
    return [(int(ranks), int(at), int(redone)) for ranks, at, redone in re.findall(said, result.stderr)]


def stages_of(ranks: int, result) -> str:
    """Return the stages that a run went through which began on so many ranks."""
    begin, stages = 0, []
    for left, at, _ in recoveries(result):
        stages.append((ranks, begin, at))
        ranks, begin = left, at
    return " ".join(f"{ranks},{begin},{end}" for ranks, begin, end in [*stages, (ranks, begin, END)] if begin < end)


def running(result) -> list[int]:
    """Return the processes of a run that have not ended."""
    pids = [int(found) for found in re.findall(r"^process (\d+)$", result.stderr, re.MULTILINE)]
    assert pids
    return [pid for pid in pids if DYING.name.encode() in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""
