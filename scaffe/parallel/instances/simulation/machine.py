"""Machine: the cores, memory and barriers of the machine that is simulated."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from scaffe.errors import ScaffeError

MOST_CORES = 1_000_000
RANGES: dict[str, tuple[float, float]] = {
    "bandwidth": (1.0, inf),
    "link": (1.0, inf),
    "barrier": (0.0, 1.0),
    "core_gflops": (1e-6, 1e9),
    "core_bandwidth": (1.0, 1e18),
    "jitter": (0.0, 1.0),
}


@dataclass(frozen=True)
class Machine:
    """Cores in domains. The cores of a domain share its memory's bandwidth.

    - `cores`, `domains`: their numbers; each domain has as many cores.
    - `bandwidth`: bytes a second between a domain's memory and its cores.
    - `link`: bytes a second between an instance's cores and the memory of other domains, if it covers several.
    - `barrier`: seconds of a barrier of an instance's threads.
    - `core_gflops`: 1e9 operations a second of a core in the net's compute-intensive layers; None: as measured.
    - `core_bandwidth`: bytes a second of a core in access-intensive layers, sums and updates; None: as measured.
    - `unfused`: access-intensive layers move all their bytes at a core's bandwidth, as where no kernel computes several
      layers; otherwise they take the times that were measured.
    - `jitter`: standard deviation of the logarithm of a thread's time for a layer, at most 1.

    By default two Xeon 8280, ParaX's machine: 28 cores and six channels of DDR4-2933 each. Raise ScaffeError for
    values that no machine has: RANGES.
    """

    cores: int = 56
    domains: int = 2
    bandwidth: float = 140.8e9
    link: float = inf
    barrier: float = 5e-6
    core_gflops: float | None = None
    core_bandwidth: float | None = None
    unfused: bool = False
    jitter: float = 0.05

    def __post_init__(self) -> None:
        if self.cores > MOST_CORES:
            raise ScaffeError(f"cores must be {MOST_CORES} or fewer, got {self.cores}")
        if self.cores < 1 or self.domains < 1 or self.cores % self.domains:
            raise ScaffeError(f"{self.cores} cores can't be divided over {self.domains} domains")
        for name, (least, most) in RANGES.items():
            given = getattr(self, name)
            if given is not None and not least <= given <= most:
                raise ScaffeError(f"{name} must be from {least:g} to {most:g}, got {given:g}")

    @property
    def domain_cores(self) -> int:
        """The number of cores in a domain."""
        return self.cores // self.domains

    def sizes(self) -> list[int]:
        """Return the numbers of cores of an instance that leave no core idle, ascending."""
        inside = [x for x in range(1, self.domain_cores + 1) if self.domain_cores % x == 0]
        return inside + [m * self.domain_cores for m in range(2, self.domains + 1) if self.domains % m == 0]

    def covered(self, x: int) -> int:
        """Return the number of domains that an instance of x cores covers."""
        return max(1, x // self.domain_cores)
