"""The page's table of the best owners of parameters is what the closed forms say."""

from __future__ import annotations

from pathlib import Path

from scaffe.simulation import find_cluster
from scaffe.simulation.closed_forms import EXCHANGES, TREES
from scaffe.simulation.estimate import TRIED, best
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import of_device

NETS = {"alexnet": "AlexNet", "googlenet": "GoogLeNet", "resnet50": "ResNet-50", "vgg16": "VGG-16"}
RANKS = 16, 160, 1_024, 10_000
CLUSTERS = "ndr", "cluster-b", "taihulight"
BATCH = 32  # images a rank
RUNS = [run for run in TRIED if run.workflow == "SC-OBR" and run.bucket_bytes in ("4M", "64M")]
PAGE = Path(__file__).parents[3] / "docs" / "simulate.md"


def table() -> list[str]:
    """Return the lines of the table: the best form, and how many times as long the others take."""
    lines = ["| net, cluster | " + " | ".join(f"{ranks:,} ranks" for ranks in RANKS) + " |", "|---|---|---|---|---|"]
    for name, shown in NETS.items():
        net = build(name, BATCH)
        for cluster in map(find_cluster, CLUSTERS):
            times = of_device(net, cluster)
            cells = []
            for ranks in RANKS:
                seconds: dict[str, float] = {}
                for one in best(net, ranks, cluster, times, RUNS, TREES + EXCHANGES):
                    seconds.setdefault(one.run.owners if one.run.sync == "reduce-bcast" else "all", one.seconds)
                (first, least), *others = seconds.items()
                cells.append(f"{first}; " + ", ".join(f"{form} {time / least:.2f}" for form, time in others))
            lines.append(f"| {shown}, `{cluster.name}` | {' | '.join(cells)} |")
    return lines


def test_the_pages_table_is_what_is_estimated() -> None:
    lines = table()
    missing = [line for line in lines if line not in PAGE.read_text().splitlines()]
    assert not missing, "paste into docs/simulate.md:\n" + "\n".join(lines)
