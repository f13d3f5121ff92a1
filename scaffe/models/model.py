"""Model: the common part of the well-known nets, which builds train_val, deploy and solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scaffe import layers as L
from scaffe.errors import ScaffeError
from scaffe.proto import NetParameter, SolverParameter
from scaffe.spec import params as P
from scaffe.spec.netspec import NetSpec, Top

DATA = ("files", "input", "dummy")  # where a train_val net's batches come from
LARGEST = 2**31 - 1  # of a batch, and of a size in a prototxt
TRAINING, TESTING = dict(phase="TRAIN"), dict(phase="TEST")


@dataclass(frozen=True)
class Head:
    """A net's scores, the names of their loss and accuracy layers, the axis of the classes, and an ignored label."""

    score: Top
    loss: str = "loss"
    accuracy: str = "accuracy"
    top5: str = ""
    weight: float | None = None
    axis: int = 1
    ignore: int | None = None


# A function that adds the layers from the inputs to the scores. Arguments: the net, the number of classes, and whether
# to add auxiliary heads; by keyword the model's sizes. The last head returned is the net's main one.
Body = Callable[..., Sequence[Head]]


@dataclass(frozen=True)
class Model:
    """A net for images of `shape` (channels x height x width) in `classes` classes.

    `parameters` is the number of learned parameters of the deploy net. `source` is the path of the databases, with {}
    for "train" or "val". `transform` is the transform_param of both phases, `train_transform` is added in training.
    `sizes` are those that `sized` can change, by name, such as `side`, the height and width of a square image.
    `parameters` is counted with these.
    """

    name: str
    title: str  # the net's name in prototxt
    paper: str
    body: Body
    shape: tuple[int, ...]
    parameters: int
    solver_fields: Mapping[str, Any]
    classes: int = 1000
    batch: int = 256
    test_batch: int = 50
    source: str = "examples/imagenet/ilsvrc12_{}_lmdb"
    sources: tuple[str, str] = ("train", "val")
    transform: Mapping[str, Any] = field(default_factory=dict)
    train_transform: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def sized(self, **sizes: int) -> Model:
        """Return the model with other sizes. Raise ScaffeError for an unknown name, and outside 1 to LARGEST."""
        for name, size in sizes.items():
            if name not in self.sizes:
                raise ScaffeError(f"{self.name} has no size '{name}'; its sizes: {' '.join(self.sizes) or 'none'}")
            _checked(name, size, size)
        changed: dict[str, Any] = dict(sizes={**self.sizes, **sizes})
        if side := sizes.get("side"):
            changed |= dict(shape=(self.shape[0], side, side), transform={**self.transform, "crop_size": side})
        return replace(self, **changed)

    def train_val(self, batch: int | None = None, classes: int | None = None, data: str = "files") -> NetParameter:
        """Return the net to train and test; `data` selects databases, Input layers or random DummyData.

        `batch` is the batch size in training and, without files, in tests. Raise ScaffeError for a wrong argument.
        """
        batch, classes = _checked("batch", batch, self.batch), _checked("classes", classes, self.classes)
        if data not in DATA:
            raise ScaffeError(f"unknown data '{data}'; known: {' '.join(DATA)}")
        n = NetSpec()
        {"files": self.add_files, "input": self.add_input, "dummy": self.add_dummy}[data](n, batch)
        for head in self.body(n, classes, True, **self.sizes):
            self.add_losses(n, head, classes)
        return self._named(n)

    def deploy(self, batch: int | None = None, classes: int | None = None) -> NetParameter:
        """Return the net to classify the samples of its Input layer, one by default."""
        n = NetSpec()
        for name, shape in list(self.inputs(_checked("batch", batch, 1)).items())[:-1]:
            n[name] = L.Input(shape=dict(dim=shape))
        self.add_prob(n, self.body(n, _checked("classes", classes, self.classes), False, **self.sizes)[-1])
        return self._named(n)

    def solver(self, net: str = "train_val.prototxt") -> SolverParameter:
        """Return the solver of the paper or of the net's published prototxt."""
        return SolverParameter(net=net, snapshot_prefix=self.name, **self.solver_fields)

    def inputs(self, batch: int) -> dict[str, list[int]]:
        """Return the shapes of a batch's blobs, the labels last."""
        return {"data": [batch, *self.shape], "label": [batch]}

    def add_files(self, n: NetSpec, batch: int) -> None:
        """Add the data layers that read databases, for both phases."""
        train, test = (self.source.format(part) for part in self.sources)
        n.data, n.label = L.Data(
            ntop=2, include=TRAINING, transform_param={**self.transform, **self.train_transform},
            source=train, batch_size=batch, backend=P.Data.LMDB,
        )  # fmt: skip
        n["data of tests"] = L.Data(
            ntop=0, name="data", top=["data", "label"], include=TESTING, transform_param=dict(self.transform),
            source=test, batch_size=self.test_batch, backend=P.Data.LMDB,
        )  # fmt: skip

    def add_input(self, n: NetSpec, batch: int) -> None:
        """Add Input layers, whose tops the caller fills."""
        for name, shape in self.inputs(batch).items():
            n[name] = L.Input(shape=dict(dim=shape))

    def add_dummy(self, n: NetSpec, batch: int) -> None:
        """Add DummyData: random images, new in each iteration, with label 0."""
        shapes = [dict(dim=shape) for shape in self.inputs(batch).values()]
        n.data, n.label = L.DummyData(ntop=2, shape=shapes, data_filler=[dict(type="gaussian"), dict(type="constant")])

    def add_prob(self, n: NetSpec, head: Head) -> None:
        """Add the layer `prob`, the probabilities of the classes."""
        axis = {} if head.axis == 1 else {"axis": head.axis}
        n.prob = L.Softmax(head.score, **axis)

    def add_losses(self, n: NetSpec, head: Head, classes: int) -> None:
        """Add a head's loss and accuracies."""
        label = n[list(self.inputs(1))[-1]]
        axis: dict[str, Any] = {} if head.axis == 1 else {"axis": head.axis}
        ignore: dict[str, Any] = {} if head.ignore is None else {"ignore_label": head.ignore}
        n[head.accuracy] = L.Accuracy(head.score, label, include=TESTING, **axis, **ignore)
        if head.top5 and classes > 5:
            n[head.top5] = L.Accuracy(head.score, label, include=TESTING, top_k=5, **axis, **ignore)
        fields: dict[str, Any] = {} if head.weight is None else {"loss_weight": head.weight}
        if ignore:
            fields["loss_param"] = ignore
        n[head.loss] = L.SoftmaxWithLoss(head.score, label, **fields, **axis)

    def _named(self, n: NetSpec) -> NetParameter:
        net = NetParameter(name=self.title)
        net.MergeFrom(n.to_proto())
        return net


def _checked(what: str, value: int | None, default: int) -> int:
    if value is not None and value < 1:
        raise ScaffeError(f"{what} must be 1 or more, got {value}")
    if value is not None and value > LARGEST:
        raise ScaffeError(f"{what} must be {LARGEST} or less, got {value}")
    return default if value is None else value
