"""A word model: two LSTM layers that predict each next word of a text."""

from __future__ import annotations

from typing import Any

from scaffe import layers as L
from scaffe.models.blocks import dropout
from scaffe.models.model import Head, Model
from scaffe.models.rows import add_hdf5
from scaffe.spec.netspec import NetSpec

STEPS = 35
WIDTH = 650
_UNIFORM = dict(type="uniform", min=-0.05, max=0.05)


class WordModel(Model):
    """A net over sequences. Inputs (steps x sequences): words; cont, 0 where a sequence begins; the next words."""

    def inputs(self, batch: int) -> dict[str, list[int]]:
        """Return the shapes of words, cont and targets, (steps x batch) each."""
        return dict.fromkeys(("words", "cont", "targets"), [*self.shape, batch])

    def add_files(self, n: NetSpec, batch: int) -> None:
        """Add layers that read HDF5 files, which the lists `source` name; a row of a file is a step."""
        train, test = (self.source.format(part) for part in self.sources)
        # One row per step: the batch axis of an HDF5Data layer is axis 0, here time.
        add_hdf5(n, list(self.inputs(batch)), (train, self.shape[0]), (test, self.shape[0]))

    def add_dummy(self, n: NetSpec, batch: int) -> None:
        """Add constant inputs: word 0 in all steps."""
        shapes = [dict(dim=shape) for shape in self.inputs(batch).values()]
        fillers = [dict(type="constant", value=value) for value in (0, 1, 0)]
        n.words, n.cont, n.targets = L.DummyData(ntop=3, shape=shapes, data_filler=fillers)


def body(
    n: NetSpec, classes: int, training: bool, hidden: int = WIDTH, layers: int = 2, steps: int = STEPS,
    batch_first: bool = False,
) -> list[Head]:  # fmt: skip
    """Add the words' vectors, LSTM layers with dropout around each, and the scores of the next words."""
    n.embedding = L.Embed(n.words, input_dim=classes, num_output=hidden, bias_term=False, weight_filler=_UNIFORM)
    x = dropout(n, "embedding_drop", n.embedding)
    fields: dict[str, Any] = dict(batch_first=True) if batch_first else {}
    for i in range(1, layers + 1):
        n[f"lstm{i}"] = L.LSTM(x, n.cont, num_output=hidden, weight_filler=_UNIFORM, bias_filler=_UNIFORM, **fields)
        x = dropout(n, f"lstm{i}_drop", n[f"lstm{i}"])
    n.predict = L.InnerProduct(x, num_output=classes, axis=2, weight_filler=_UNIFORM, bias_filler=_UNIFORM)
    # The paper sums over the steps, where SoftmaxWithLoss averages.
    return [Head(n.predict, weight=steps, axis=2)]


# The medium model of section 4.1: rate 1, divided by 1.2 in each epoch after the sixth; 39 epochs of 1,327 batches of
# 20 x 35 words of the Penn Tree Bank; the norm of the gradient is clipped at 5.
_EPOCH = 1327
LSTM = WordModel(
    name="lstm",
    title="LSTM_words",
    paper="Zaremba et al. 2014, the medium model",
    body=body,
    shape=(STEPS,),
    parameters=19_775_200,
    classes=10_000,
    batch=20,
    source="examples/ptb/{}.txt",
    sources=("train", "valid"),
    solver_fields=dict(
        base_lr=1.0, lr_policy="multistep", gamma=1 / 1.2, stepvalue=[_EPOCH * i for i in range(6, 39)],
        max_iter=_EPOCH * 39, clip_gradients=5.0, test_iter=[105], test_interval=_EPOCH, display=100, snapshot=_EPOCH,
    ),
)  # fmt: skip
