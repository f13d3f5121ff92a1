"""Numbers: what is measured of a run at an interval, for all writers alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Metric(NamedTuple):
    """A kind of number.

    - `name`: Prometheus's name without "scaffe_", in its base units: seconds, ratios from 0 to 1.
    - `help`: one line on its meaning.
    - `tag`: the name of its curve in TensorBoard, with labels in braces; "" for a number without a curve.
    - `kind`: "gauge", or "counter", which never falls while the run lasts.
    """

    name: str
    help: str
    tag: str = ""
    kind: str = "gauge"


INFO = Metric("info", "1, with what the run is as labels.")
ITERATION = Metric("iteration", "Iteration of the last measurement, from 0.")
MAX_ITERATIONS = Metric("max_iterations", "Iterations that the solver file asks for.")
IMAGES = Metric("images_total", "Samples of the global batch that were trained on.", kind="counter")
LOSS = Metric("loss", "Loss, the mean of the last average_loss iterations, as logged.", "loss/smoothed")
ITERATION_LOSS = Metric("iteration_loss", "Loss of the last iteration.", "loss/iteration")
RATE = Metric("learning_rate", "Learning rate, before any lr_mult.", "learning_rate")
TRAIN_OUTPUT = Metric("train_output", "Output of the train net.", "train/{output}")
TEST_OUTPUT = Metric("test_output", "Output of a test net, the mean of its batches.", "test_{test_net}/{output}")
TEST_ITERATION = Metric("test_iteration", "Iteration before which the test net was last tested.")
SPEED = Metric("images_per_second", "Samples of the global batch in a second of training.", "speed/images_per_second")
SECONDS = Metric("iteration_seconds", "Mean seconds of an iteration.", "speed/iteration_seconds")
HIDDEN = Metric(
    "communication_hidden_ratio", "Share of the messages' time that computing hides.", "communication/{kind}_hidden"
)
EXPOSED = Metric(
    "communication_exposed_ratio", "Share of the messages' time that is waited for.", "communication/{kind}_exposed"
)
READING = Metric("reading_wait_ratio", "Share of the time in which ranks wait for records.", "reading/wait")
WORST_READING = Metric("reading_worst_wait_ratio", "The same share on the rank that waits most.", "reading/worst_wait")
SLOWEST = Metric("slowest_rank", "The rank that works longest in an iteration.", "ranks/slowest")
SLOWEST_WORK = Metric("slowest_rank_work_seconds", "Its seconds of work in an iteration.", "ranks/slowest_work_seconds")
MEAN_WORK = Metric("work_seconds", "Mean of the ranks' seconds of work in an iteration.", "ranks/mean_work_seconds")
RANK_WORK = Metric("rank_work_seconds", "Seconds of an iteration in which a rank does not wait for others.")
RANK_EXPOSED = Metric("rank_exposed_seconds", "Seconds of an iteration in which a rank waits for messages.")
RANK_READING = Metric("rank_reading_wait_ratio", "Share of the time in which a rank waits for records.")
GRADIENT = Metric("gradient_norm", "L2 norm of a layer's gradients, before weight decay.", "gradient_norm/{layer}")
UPDATE = Metric("update_norm", "L2 norm of what was subtracted from a layer's parameters.", "update_norm/{layer}")


class Sample(NamedTuple):
    """A number with its labels, such as layer or rank."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = {}

    @property
    def tag(self) -> str:
        """The name of its curve, "" if it has none."""
        return self.metric.tag.format(**self.labels)


class Node(NamedTuple):
    """A layer as a node of the net's graph: name, type, and the layers that its bottoms come from."""

    name: str
    type: str
    inputs: Sequence[str]


class Numbers(NamedTuple):
    """What was measured at an iteration, and what belongs to the run.

    - `begun`: the iteration at which training went on, in the first numbers after that, else None. Numbers of later
      iterations that an earlier run wrote to the same place are replaced.
    - `pictures`: by tag, functions that return PNG files, b"" for none; the thread that writes calls them.
    - `texts`: by tag, plain text.
    - `nodes`: the net's layers.
    """

    iteration: int
    samples: Sequence[Sample] = ()
    begun: int | None = None
    pictures: Mapping[str, Callable[[], bytes]] = {}
    texts: Mapping[str, str] = {}
    nodes: Sequence[Node] = ()


class Writer(Protocol):
    """Where numbers are written; one thread calls it."""

    name: str  # in messages

    def write(self, numbers: Sequence[Numbers]) -> None:
        """Write these, the oldest first. Raise OSError or ScaffeError where that fails; the next call tries again."""

    def close(self) -> None:
        """Close its files."""
