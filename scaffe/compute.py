"""Compute: the engine, the device, the number format and the memory with which a net computes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from scaffe.devices.threads import check_threads
from scaffe.errors import EngineError, ScaffeError
from scaffe.setting import check_fields, parse_bytes, setting

AUTO, FIXED, TIMED = "auto", "fixed", "timed"  # plans, of which any other is a file; AUTO elsewhere too
ENGINES = (AUTO, "reference", "onednn")
DEVICES = (AUTO, "cpu", "cuda")
NUMBERS = ("float32", "tf32", "bf16")
GRAPHS = (AUTO, "on", "off")
WORKSPACE_BYTES = float(1 << 30)
PLAN_SECONDS = 30.0
REPLAY = "replay:"  # before a profile's path, in place of a number format


def _workspace(given: str | float) -> float:
    try:
        return given if isinstance(given, float) else float(parse_bytes(str(given)))
    except (ValueError, OverflowError):
        raise ValueError(f"bytes such as 64M or 1G are needed, got '{given}'") from None


def _numbers(given: str) -> str:
    if given not in NUMBERS and not str(given).startswith(REPLAY):
        raise ValueError(f"unknown '{given}'; known: {' '.join(NUMBERS)} {REPLAY}PROFILE.json")
    return given


@dataclass(frozen=True)
class Compute:
    """How a net computes, on any device.

    `engine` is one of ENGINES, `device` of DEVICES, `graphs` of GRAPHS. `numbers` is the number format of the factors
    in convolutions and inner products, one of NUMBERS; sums and parameters are float32. For a Solver `numbers` can be
    "replay:FILE": layers take the times of that profile and compute nothing. `threads` counts those of each instance; 0
    is one on each of its cores, or for a single instance OMP_NUM_THREADS, if set. `plan` is "fixed", "timed", a file,
    or "auto": timed on a GPU within `plan_seconds`, fixed on the CPU. `deterministic` allows only kernels whose results
    repeat bit for bit. On a GPU a kernel's workspace has at most `workspace_bytes`. Raise EngineError, LaunchError or
    ScaffeError for other values.
    """

    engine: str = setting(AUTO, "kernels of the layers", choices=ENGINES)
    device: str = setting(AUTO, "auto: a GPU if there is one", choices=DEVICES)
    numbers: str = setting(
        "float32",
        "number format of products; train also takes replay:FILE",
        metavar="|".join(NUMBERS),
        flag="compute",
        parse=_numbers,
    )
    threads: int = setting(0, "of each instance; 0: as many as its cores", metavar="N")
    plan: str = setting(AUTO, "choice of the kernels", metavar="auto|fixed|timed|FILE")
    plan_seconds: float = setting(
        PLAN_SECONDS, "seconds for timing a GPU's kernels before iteration 0", metavar="S", rare=True
    )
    deterministic: bool = setting(False, "only kernels whose results repeat bit for bit")
    workspace_bytes: float = setting(
        WORKSPACE_BYTES, "limit of a GPU kernel's workspace: 64M, 1G, inf", metavar="N", rare=True, parse=_workspace
    )
    graphs: str = setting(AUTO, "on a GPU, record runs of layers and repeat them", choices=GRAPHS, rare=True)
    allow_python_layers: bool = setting(False, "allow the net's Python layers to run code", rare=True)

    @property
    def plan_file(self) -> str:
        """The file of `plan`, "" where that is none."""
        return "" if self.plan in (AUTO, FIXED, TIMED) else self.plan

    def __post_init__(self) -> None:
        check_fields(self, Compute)
        if self.engine not in ENGINES:
            raise EngineError(f"unknown engine '{self.engine}'; known engines: {' '.join(ENGINES)}")
        if self.device not in DEVICES:
            raise ScaffeError(f"unknown device '{self.device}'; known devices: {' '.join(DEVICES)}")
        if self.numbers not in NUMBERS and not self.profile:
            raise EngineError(f"unknown kind of number '{self.numbers}'; known ones: {' '.join(NUMBERS)}")
        if self.graphs not in GRAPHS:
            raise EngineError(f"graphs must be one of {' '.join(GRAPHS)}, got '{self.graphs}'")
        if not self.plan_seconds >= 0:
            raise ScaffeError(f"plan_seconds must be 0 or more, got {self.plan_seconds}")
        if not self.workspace_bytes >= 0:
            raise ScaffeError(f"workspace_bytes must be 0 or more, got {self.workspace_bytes}")
        check_threads(self.threads)

    @property
    def profile(self) -> str:
        """The profile whose times the layers take; "" where they compute."""
        return self.numbers.removeprefix(REPLAY) if self.numbers.startswith(REPLAY) else ""


DEFAULT = Compute()
MOVED = {
    one.name: f"compute=Compute({one.name}=...)"
    for one in fields(Compute)
    if one.name not in ("allow_python_layers", "engine")
} | {"gpu": "engine=scaffe.engines.create(Compute(...), gpu)"}  # earlier keywords of Net, for scaffe.setting.moved
