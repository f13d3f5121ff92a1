"""swCaffe, figures 10 and 11: AlexNet's speedup on 1,024 nodes.

The model has no overlap, as the paper's numbers do: with T seconds of a node's iteration and E of the exchange,
speedup = 1024 T / (T + E). E is fitted on batch 256, and must hold for the other batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drawing import MODEL, OTHER, PAPER, bars
from figure import ASSUMED, DERIVED, FITTED, STATED, Data, Figure, Input, S
from verdicts import VERDICTS, Found, Judged, judged

from collectives.model import cost
from collectives.model.clusters import TAIHULIGHT

NODES, MIB, ERROR = 1024, 1 << 20, 0.1
SPEEDUPS = {256: 715.45, 128: 561.58, 64: 409.50}  # by batch; the exchange is fitted on the first


def speedup(nodes: int, seconds: float, exchange: float) -> float:
    """Return how many times as fast nodes are as one, where nothing overlaps."""
    return nodes * seconds / (seconds + exchange)


def exchange_of(nodes: int, seconds: float, found: float) -> float:
    """Return the exchange's seconds that give this speedup."""
    return seconds * (nodes / found - 1)


class Nodes1024(Figure):
    """Scaling to 1,024 nodes, from one exchange time."""

    id, tag = "swcaffe-10", S
    inputs = (
        Input("AlexNet", 94.17, "images/s of a node", STATED, "table III, batch 256"),
        Input("small batch", 1.0, "of that rate, with 128 and 64", ASSUMED, "smaller products", 0.9, None),
        Input("parameters", 232.6 * MIB, "bytes", STATED, "section VI.C, in MiB"),
        Input("exchange", exchange_of(NODES, 256 / 94.17, 715.45), "s", FITTED, "on batch 256 alone"),
        Input("beta1", TAIHULIGHT.beta, "s/byte", STATED, "section II.B, 12 GB/s over MPI; beta2 is 4 times as long"),
        Input("gamma", TAIHULIGHT.gamma, "s/byte", DERIVED, "section III, an addition moves 3 bytes at 28 GB/s"),
        Input("alpha", TAIHULIGHT.alpha, "s", ASSUMED, "microseconds in figure 6"),
        Input("error", ERROR, "of an iteration", DERIVED, "docs/simulate.md: closed forms, nothing hidden"),
    )

    def nominal(self) -> float:
        """Return the seconds of the exchange by the paper's equations 5 and 6."""
        n, rates = int(self.value("parameters")), {"alpha": "alpha", "beta": "beta1", "gamma": "gamma"}
        links = replace(TAIHULIGHT, **{name: self.value(of) for name, of in rates.items()})  # type: ignore[arg-type]
        return cost("allreduce", "halving", links, NODES, n, [n]).seconds

    def speedups(self, exchange: float) -> list[float]:
        """Return the speedups by batch."""
        return [speedup(NODES, self.seconds(batch), exchange) for batch in SPEEDUPS]

    def seconds(self, batch: int) -> float:
        """Return the seconds in which a node computes a batch."""
        return batch / self.value("AlexNet") / (1 if batch == 256 else self.value("small batch"))

    def model(self, measured: Data) -> Data:
        """Return speedups by batch: with the fitted exchange and its range, and with nominal rates."""
        exchange = self.value("exchange")
        fitted = [vars(self.spread(lambda k=k: self.speedups(exchange)[k])) for k in range(len(SPEEDUPS))]
        return {"fitted": fitted, "nominal": self.speedups(self.nominal())}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the two speedups that are not fitted; the worse verdict counts."""
        found = [Found(**each) for each in modelled["fitted"]][1:]
        verdicts = [judged(one, SPEEDUPS[batch], ERROR) for one, batch in zip(found, (128, 64), strict=True)]
        text = " and ".join(one.words() for one in found)
        return Judged(max(verdicts, key=VERDICTS.index), f"{text}, the exchange fitted on 256")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw speedups as the paper's bars."""
        fitted = [each["value"] for each in modelled["fitted"]]
        rows = [("paper", SPEEDUPS.values(), PAPER), ("modelled, exchange fitted on 256", fitted, MODEL)]
        bars(
            axes,
            [f"batch {n}" for n in SPEEDUPS],
            [*rows, ("equations 5, 6, nominal rates", modelled["nominal"], OTHER)],
        )
        axes.set(ylabel="speedup on 1,024 nodes", ylim=(0, 1500), title="AlexNet on TaihuLight")


FIGURE = Nodes1024()
