"""Ways to compute a net's iterations, each in processes of its own, which take turns in one run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TRAIN, INFER, TORCH = "train", "infer", "torch"
PATIENCE = 300  # seconds for the start of a process, and for an answer
TORCH_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "2000000000"}  # faster with these


@dataclass(frozen=True)
class Way:
    """One way to compute: `kind` of work, in so many `processes`, `instances` and `threads` of each instance.

    `batch` is that of all together. `solver` is the update's type. `timed` measures the time in oneDNN's calls.
    """

    name: str
    net: str
    batch: int
    kind: str = TRAIN
    processes: int = 1
    instances: int = 1
    threads: int = 1
    gather: str = "auto"
    timed: bool = False
    solver: str = "SGD"

    def cores_of(self, rank: int) -> set[int]:
        """Return the cores of a process: so many for each, in order of the ranks."""
        cores, count = sorted(os.sched_getaffinity(0)), self.instances * self.threads
        return {cores[(rank * count + i) % len(cores)] for i in range(count)}


class Contestant:
    """The processes of one way, which compute on request. `python` runs them."""

    def __init__(self, way: Way, folder: str, python: str):
        self.way = way
        self.log = Path(folder) / f"{way.net}-{way.name}.log".replace(" ", "-").replace("/", "-")
        address, file = str(self.log.with_suffix(".socket")), self.log.with_suffix(".json")
        file.write_text(json.dumps(asdict(way)))
        with socket.socket(socket.AF_UNIX) as listener, open(self.log, "w") as log:
            listener.bind(address)
            listener.listen()
            environment = {**os.environ, "OMP_NUM_THREADS": str(way.threads), "PYTHONPATH": str(HERE.parents[1])}
            environment |= TORCH_MALLOC if way.kind == TORCH else {}
            self._process = subprocess.Popen(
                [*self._launcher(python), str(HERE / "trainer.py"), str(file), address],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            found = [self._accepted(listener) for _ in range(way.processes)]
        self._files = []
        for connection in found:
            with connection:  # which the file keeps open
                self._files.append(connection.makefile("rw"))
        for lines in self._files:
            self._answer(lines)

    def _launcher(self, python: str) -> list[str]:
        if self.way.processes == 1:
            return [python]
        mpi = ["-m", "mpi4py"] if self.way.kind == TRAIN else []
        return [str(HERE.parent / "mpirun.sh"), "-n", str(self.way.processes), python, *mpi]

    def _accepted(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(1)
        for _ in range(PATIENCE):
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if self._process.poll() is not None:
                    break
            else:
                connection.settimeout(PATIENCE)
                return connection
        raise self._failure()

    def _failure(self) -> RuntimeError:
        self._process.kill()
        tail = "\n".join(self.log.read_text().splitlines()[-15:])
        return RuntimeError(f"{self.way.net}, {self.way.name}: the process failed:\n{tail}")

    def _answer(self, lines: Any) -> Any:
        line = lines.readline()
        if not line:
            raise self._failure()
        return json.loads(line)

    def ask(self, *request: Any) -> list[Any]:
        """Return the answers of all processes to a request such as "step", 3."""
        for lines in self._files:
            print(json.dumps(request), file=lines, flush=True)
        return [self._answer(lines) for lines in self._files]

    def seconds(self, count: int) -> float:
        """Return the seconds of an iteration, over so many of them, of the slowest process."""
        return float(max(self.ask("step", count))) / count

    def memory(self) -> tuple[float, float]:
        """Return the memory of all processes (MiB): the sum of their resident sets, and of their proportional ones."""
        resident, proportional = zip(*self.ask("memory"), strict=True)
        return sum(resident), sum(proportional)

    def close(self) -> None:
        """End the processes."""
        for lines in self._files:
            lines.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Turns:
    """Contestants over one net, by name; a context manager. `pythons` holds the Python of each kind of work."""

    def __init__(self, ways: list[Way], pythons: dict[str, str]):
        self._folder = tempfile.TemporaryDirectory()
        self.all: dict[str, Contestant] = {}
        try:
            for way in ways:
                python = pythons.get(way.kind, sys.executable)
                self.all[way.name] = Contestant(way, self._folder.name, python)
        except BaseException:
            self.__exit__()
            raise

    def counts(self, seconds: float) -> dict[str, int]:
        """Return how many iterations of each take about so many seconds, after some that warm up."""
        for contestant in self.all.values():
            contestant.seconds(3)
        spent = {name: contestant.seconds(2) for name, contestant in self.all.items()}
        return {name: max(1, round(seconds / one)) for name, one in spent.items()}

    def turn(self, counts: dict[str, int], backwards: bool) -> dict[str, float]:
        """Return the seconds of an iteration of each, one after the other."""
        order = list(self.all.items())[:: -1 if backwards else 1]
        return {name: contestant.seconds(counts[name]) for name, contestant in order}

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        for contestant in self.all.values():
            contestant.close()
        self._folder.cleanup()
