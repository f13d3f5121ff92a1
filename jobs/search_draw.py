"""Random trainings for jobs/search.py: a net, a solver, and how ranks train it; and the same on one rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from google.protobuf import text_format
from search_layers import draw_net

from collectives import CollectiveError, check_algorithm
from collectives.codecs import CODECS
from collectives.schedules.algorithms import LEADERS, OTHERS
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.instances.gathers.gather import registered as gathers
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.owners import OWNERS
from scaffe.parallel.run import SYNCS, Run
from scaffe.parallel.workflows.workflow import registered as workflows
from scaffe.proto import SolverParameter

MOST_RANKS = 8
ITERATIONS = 4
ENGINES = "reference", "onednn"
ALGORITHMS = (
    "auto", "mpi", "slices", "chain", "cb-2", "cc-2", "ccb-4-2", "two-tree", "binomial", "flat", "halving", "kary-3",
    "ring", "leaders-chain",
)  # fmt: skip
RULES = {
    "SGD": "base_lr: 0.02 momentum: 0.9",
    "Nesterov": "base_lr: 0.02 momentum: 0.8",
    "AdaGrad": "base_lr: 0.02 delta: 0.1",
    "RMSProp": "base_lr: 0.005 delta: 0.1 rms_decay: 0.9",
    "AdaDelta": "base_lr: 1 momentum: 0.9 delta: 0.01",
    "Adam": "base_lr: 0.01 momentum: 0.9 momentum2: 0.99 delta: 0.1",
    "LARS": "base_lr: 1 momentum: 0.9 lars_trust: 0.02",
}
POLICIES = (
    'lr_policy: "fixed"',
    'lr_policy: "step" stepsize: 2 gamma: 0.5',
    'lr_policy: "inv" gamma: 0.1 power: 0.75',
    'lr_policy: "multistep" stepvalue: 1 stepvalue: 3 gamma: 0.5',
    'lr_policy: "poly" power: 2',
)


@dataclass(frozen=True)
class Training:
    """A training: the solver, the ranks, the engine, and the records of its settings."""

    solver: str
    ranks: int = 1
    engine: str = ENGINES[0]
    run: dict[str, Any] = field(default_factory=dict)
    instances: dict[str, Any] = field(default_factory=dict)

    @property
    def divides_passes(self) -> bool:
        """Whether a layer normalises by the rows of a pass, so that one rank has as many passes as ranks have parts."""
        return any(f'type: "{kind}"' in self.solver for kind in ("BatchNorm", "BN"))

    def param(self) -> SolverParameter:
        """Return the solver's message."""
        return text_format.Parse(self.solver, SolverParameter())

    def records(self) -> dict[str, Any]:
        """Return the settings' records, by Solver's keywords."""
        return {"run": Run(**self.run), "instances": Instances(**self.instances)}

    def __str__(self) -> str:
        words = [f"{self.ranks} rank(s)", self.engine, *(f"{k}={v}" for k, v in (self.run | self.instances).items())]
        return " ".join(words)


@dataclass(frozen=True)
class Case:
    """A random training of several ranks, and those of one rank that must end with the same parameters."""

    number: int
    several: Training
    alone: Training

    @property
    def ranks(self) -> int:
        """The number of ranks that train."""
        return self.several.ranks


def draw_run(random: Random) -> dict[str, Any]:
    """Return how ranks train together."""
    run: dict[str, Any] = {"workflow": random.choice(list(workflows())), "sync": random.choice(list(SYNCS))}
    run["drive"] = random.choice(["auto", *DRIVES])
    run |= draw_collective(random, run["sync"])
    if random.random() < 0.2:
        run["scaling"] = "weak"
    return run


def draw_collective(random: Random, sync: str) -> dict[str, Any]:
    """Return how collectives run, and in which messages."""
    run: dict[str, Any] = {"bucket_bytes": random.choice(["0", "200", "1K", "4M"])}
    run["reduce"] = random.choice([name for name in ALGORITHMS if _fits(sync, name)])
    run["chunk_bytes"] = random.choice([0, 0, 64, 1024])
    return run


def draw_owners(random: Random, run: dict[str, Any]) -> dict[str, Any]:
    """Return a run, mostly with other owners than the root, or with gradients that travel in other numbers."""
    if run["sync"] == "reduce-bcast" and random.random() < 0.6:
        run = {**run, "owners": random.choice(list(OWNERS))}
        run["reduce"] = run["reduce"] if _fits(run["sync"], run["reduce"], OWNERS[run["owners"]]) else "auto"
    if random.random() < 0.15:
        run = {**run, "gradient_numbers": random.choice(list(CODECS)), "error_feedback": random.choice(["on", "off"])}
        run["reduce"] = "auto" if run["reduce"] in OTHERS or run["reduce"].startswith(LEADERS) else run["reduce"]
    return run


def _fits(sync: str, algorithm: str, verb: str = "") -> bool:
    try:
        check_algorithm(verb or SYNCS[sync], algorithm, None)
    except CollectiveError:
        return False
    return True


def draw_solver(random: Random, has_statistics: bool) -> list[str]:
    """Return lines of a solver, without those that a reference changes.

    L1's step has the sign of the value. A bias before BatchNorm has a gradient of 0, and so a sign that rounding gives.
    """
    rule = random.choice(list(RULES))
    lines = [f'type: "{rule}" {RULES[rule]} {random.choice(POLICIES)}']
    lines.append(f"random_seed: {random.randint(1, 999)} display: 1")
    if random.random() < 0.7:
        kind = "L1" if rule != "LARS" and random.random() < 0.3 and not has_statistics else "L2"
        lines.append(f'weight_decay: {random.choice([0.0005, 0.01])} regularization_type: "{kind}"')
    if random.random() < 0.3:
        first, second = random.randint(1, 4), random.randint(1, 4)
        lines.append(f"test_iter: {first} test_iter: {second} test_interval: {random.choice([2, 3])}")
        lines.append('test_state { stage: "one" } test_state { stage: "other" }')
    elif random.random() < 0.3:
        lines.append("test_iter: 3 test_interval: 2 test_compute_loss: true")
    return lines


def draw(seed: int, number: int) -> Case:
    """Return case `number` of a seed."""
    random = Random(f"{seed} {number}")
    ranks, instances = random.randint(1, MOST_RANKS), {}
    if ranks == 1 or random.random() < 0.2:
        n = random.choice([2, 3] if ranks < 4 else [2])
        instances = {"n": n, "gather": random.choice(list(gathers())), "oversubscribe": True}
    run = draw_run(random)
    if instances and run["drive"] == "hook":
        run["drive"] = "auto"
    run = draw_owners(Random(f"{seed} {number} owners"), run) if ranks > 1 else run
    sharers, is_weak = ranks * instances.get("n", 1), run.get("scaling") == "weak"
    wants_statistics = random.random() < 0.15
    iter_size, clip = random.choice([1, 1, 2, 3]), random.choice([0, 0, 0.05, 0.3])
    rows = random.randint(1, 3) if wants_statistics or is_weak else 0
    batch = rows if is_weak else sharers * rows or random.randint(max(2, sharers), 3 * sharers + 2)
    solver, test_batch = draw_solver(random, wants_statistics), random.randint(2, 5)
    state = random.getstate()

    def training(batch: int, iter_size: int, clip: float) -> str:
        random.setstate(state)  # the same net each time
        net = draw_net(random, batch, test_batch, wants_statistics)
        more = f"iter_size: {iter_size} clip_gradients: {clip or -1:.9g} max_iter: 8 snapshot_after_train: false"
        return "\n".join([*solver, more, "net_param {", *net.lines, "}"])

    several = training(batch, iter_size, clip)
    if Training(several).divides_passes:
        alone = training(rows, iter_size * sharers, clip * sharers)
    else:
        alone = training(batch * sharers if is_weak else batch, iter_size, clip)
    engine = random.choice(ENGINES)
    return Case(number, Training(several, ranks, engine, run, instances), Training(alone, engine=engine))
