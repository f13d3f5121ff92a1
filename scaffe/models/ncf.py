"""NCF: neural collaborative filtering, which predicts whether a user takes an item."""

from __future__ import annotations

import numpy as np

from scaffe import layers as L
from scaffe.errors import ScaffeError
from scaffe.models.blocks import fc, gaussian, named
from scaffe.models.model import Head
from scaffe.models.rows import ADAM, Rows, RowsModel
from scaffe.spec import params as P
from scaffe.spec.netspec import NetSpec, Top

NEGATIVES = 4  # items not taken for each item taken (section 4.1)
_TASTES = 4  # numbers that decide what a made-up user takes
_TAKEN = 8  # one item in eight
_INITIAL = gaussian(0.01)


class RatingModel(RowsModel):
    """A net over pairs. Inputs (pairs): user; item; label, 1 where the user took the item, else 0."""

    def row(self) -> dict[str, list[int]]:
        """Return the shape of user, item and label: one number each."""
        return {"user": [], "item": [], "label": []}

    def add_prob(self, n: NetSpec, head: Head) -> None:
        """Add the layer `prob`, the probability that the user takes the item."""
        n.prob = L.Sigmoid(head.score)

    def add_losses(self, n: NetSpec, head: Head, classes: int) -> None:
        """Add the binary cross entropy (equation 7, divided by the batch)."""
        n[head.loss] = L.SigmoidCrossEntropyLoss(head.score, n.label)

    def made_up(self, rows: int, classes: int, rng: np.random.Generator) -> Rows:
        """Return pairs of users and items with tastes: a user takes the eighth of the items that fits best."""
        _check_classes(classes)
        users, items = self.sizes["users"], self.sizes["items"]
        fit = rng.standard_normal((users, _TASTES)) @ rng.standard_normal((_TASTES, items))
        best = np.argsort(-fit, axis=1)
        taken = max(1, items // _TAKEN)
        user = rng.integers(0, users, rows)
        label = rng.integers(0, 1 + NEGATIVES, rows) == 0
        place = np.where(label, rng.integers(0, taken, rows), rng.integers(min(taken, items - 1), items, rows))
        return {"user": user, "item": best[user, place], "label": label}


def _body(n: NetSpec, classes: int, training: bool, users: int, items: int, factors: int) -> list[Head]:
    """Add NeuMF (section 3.4, figure 3): GMF of `factors` beside an MLP of 4, 2 and 1 times as many outputs."""
    _check_classes(classes)
    embeddings = [
        _embed(n, f"{who}_{part}", bottom, count, width)
        for part, width in (("gmf", factors), ("mlp", 2 * factors))
        for who, bottom, count in (("user", n.user, users), ("item", n.item, items))
    ]
    n.gmf = L.Eltwise(*embeddings[:2], operation=P.Eltwise.PROD)
    x = named(n, "mlp0", L.Concat(*embeddings[2:]))
    for i, width in enumerate((4, 2, 1), 1):
        x = fc(n, f"mlp{i}", x, width * factors, f"relu{i}", _INITIAL, param=[])
    n.both = L.Concat(n.gmf, x)
    return [Head(fc(n, "score", n.both, 1, weights=_INITIAL, param=[]))]


def _check_classes(classes: int) -> None:
    if classes != 1:
        raise ScaffeError("ncf has one class, the pairs that users take; leave --classes out")


def _embed(n: NetSpec, name: str, bottom: Top, count: int, width: int) -> Top:
    return named(n, name, L.Embed(bottom, input_dim=count, num_output=width, bias_term=False, weight_filler=_INITIAL))


# Users and items of MovieLens 1M (table 1); 8 predictive factors, an MLP of 32, 16 and 8 outputs, embeddings of 16,
# Adam (section 4.1). An epoch has 1,000,209 interactions, each with 4 negatives.
NCF = RatingModel(
    name="ncf",
    title="NCF",
    paper="He et al. 2017, NeuMF with 8 factors, MovieLens 1M",
    body=_body,
    shape=(2,),
    parameters=235_641,
    classes=1,
    batch=256,
    test_batch=250,
    source="examples/ncf/{}.txt",
    sizes=dict(users=6040, items=3706, factors=8),
    solver_fields=dict(
        ADAM, base_lr=0.001, max_iter=390_000, test_iter=[100], test_interval=19_500, display=100, snapshot=19_500
    ),
)  # fmt: skip
