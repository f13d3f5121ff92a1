"""GNMT: an encoder and a decoder of LSTM layers, with attention in Caffe's layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe import layers as L
from scaffe.errors import ScaffeError
from scaffe.models.blocks import named
from scaffe.models.model import Head
from scaffe.models.rows import ADAM, Rows, RowsModel
from scaffe.spec import params as P
from scaffe.spec.netspec import NetSpec, Top

PADDING, MARK, WORDS = 0, 1, 2  # behind a sentence; the begin of a target and the end of its next words; first word
_HIDDEN = 1e4  # taken from the score of a source step without a word
_UNIFORM = dict(type="uniform", min=-0.1, max=0.1)
_Sizes = dict[str, int]


class TranslationModel(RowsModel):
    """A net over pairs of sentences.

    Inputs (sentences x steps), padded with word 0:

    - source: the words of the sentence to translate; target: word 1, and the words of the translation;
    - cont: 0 in the first step, else 1; back: 0 in the last step, else 1;
    - next: the words of the translation, and word 1.
    """

    def row(self) -> dict[str, list[int]]:
        """Return the shapes of source, target, cont, back and next: a number for each step."""
        return {name: [self.sizes["steps"]] for name in ("source", "target", "cont", "back", "next")}

    def made_up(self, rows: int, classes: int, rng: np.random.Generator) -> Rows:
        """Return sentences of a language with two successors for each word, and each reversed in other words.

        A decoder that ignores the source can't tell a word from the other successor: without the source the loss stays
        above log 2.
        """
        steps, words = self.sizes["steps"], min(self.sizes["source_words"], classes) - WORDS
        if steps < 2 or words < 2:
            raise ScaffeError("made-up sentences need 2 steps and 4 words, source_words and classes, or more")
        blobs = {name: np.zeros((rows, steps), np.float32) for name in self.row()}
        blobs["cont"][:, 1:] = blobs["back"][:, :-1] = 1
        blobs["target"][:, 0] = MARK
        for row, length in enumerate(rng.integers(steps // 2, steps, rows)):
            sentence = [int(rng.integers(words))]
            for bit in rng.integers(0, 2, length - 1):
                sentence.append((2 * sentence[-1] + int(bit)) % words)
            source = np.array(sentence)
            translated = WORDS + words - 1 - source[::-1]
            blobs["source"][row, :length] = WORDS + source
            blobs["target"][row, 1 : length + 1] = blobs["next"][row, :length] = translated
            blobs["next"][row, length] = MARK
        return blobs


def _body(n: NetSpec, classes: int, training: bool, **sizes: int) -> list[Head]:
    if sizes["layers"] < 2:
        raise ScaffeError("gnmt needs 2 layers or more: the decoder's second layer is the first that reads the context")
    y = _lstm(n, "decoder1", _embed(n, "target_words", n.target, classes, sizes), n.cont, sizes)
    context = _attention(n, y, _encoder(n, sizes), sizes)
    for i in range(2, sizes["layers"] + 1):
        n[f"decoder{i}_in"] = L.Concat(y, context, axis=2)
        y = _residual(n, f"decoder{i}", y, _lstm(n, f"decoder{i}", n[f"decoder{i}_in"], n.cont, sizes), i)
    return [Head(_product(n, "predict", y, classes, axis=2), axis=2, ignore=PADDING)]


def _encoder(n: NetSpec, sizes: _Sizes) -> Top:
    """Add the encoder, whose first layer reads the sentence in both directions (section 3.2, figure 3)."""
    words = _embed(n, "source_words", n.source, sizes["source_words"], sizes)
    forward = _lstm(n, "encoder1", words, n.cont, sizes)
    x = named(n, "encoder1_both", L.Concat(forward, _lstm(n, "encoder1_back", words, n.back, sizes, True), axis=2))
    for i in range(2, sizes["layers"] + 1):
        x = _residual(n, f"encoder{i}", x, _lstm(n, f"encoder{i}", x, n.cont, sizes), i)
    return x


def _residual(n: NetSpec, name: str, x: Top, y: Top, layer: int) -> Top:
    """Add x to a layer's y from the third layer on (section 3.1)."""
    return y if layer < 3 else named(n, f"{name}_sum", L.Eltwise(y, x))


def _attention(n: NetSpec, query: Top, memory: Top, sizes: _Sizes) -> Top:
    """Add the context of each step of the query, a mean of the memory weighted by the attention (equation 4).

    Query and memory, the context too: (sentences x steps x hidden). Between them blobs are (sentences x the memory's
    steps x the query's steps x hidden). Pooling averages over the memory's steps, which `steps` makes a sum.
    """
    steps, hidden = sizes["steps"], sizes["hidden"]
    asked = _product(n, "attention_query", query, hidden, axis=2)
    n.query_rows = L.Tile(_shaped(n, "query_row", asked, 0, 1, steps, hidden), axis=1, tiles=steps)
    keys = _product(n, "attention_keys", memory, hidden, axis=2, bias_term=False)
    n.key_columns = L.Tile(_shaped(n, "key_column", keys, 0, 0, 1, hidden), axis=2, tiles=steps)
    n.attention_sum = L.Eltwise(n.query_rows, n.key_columns)
    n.attention_tanh = L.TanH(n.attention_sum, in_place=True)
    score = _shaped(n, "scores", _product(n, "score", n.attention_tanh, 1, axis=3, bias_term=False), 0, 0, 0)
    n.is_word = L.Threshold(n.source, threshold=PADDING)
    n.no_word = L.Power(n.is_word, scale=_HIDDEN, shift=-_HIDDEN)
    n.attention = L.Softmax(L.Bias(score, n.no_word, axis=0), axis=1)
    columns = _shaped(n, "memory_column", memory, 0, 0, 1, hidden)
    n.weighted = L.Scale(L.Tile(columns, axis=2, tiles=steps), n.attention, axis=0)
    flat = _shaped(n, "weighted_rows", n.weighted, 0, 1, steps, -1)
    n.mean = L.Pooling(flat, pool=P.Pooling.AVE, kernel_h=steps, kernel_w=1)
    return named(n, "context", L.Power(_shaped(n, "means", n.mean, 0, steps, hidden), scale=steps))


def _lstm(n: NetSpec, name: str, x: Top, cont: Top, sizes: _Sizes, reverse: bool = False) -> Top:
    fields: dict[str, Any] = dict(weight_filler=_UNIFORM, bias_filler=_UNIFORM, batch_first=True)
    if reverse:
        fields["reverse"] = True
    return named(n, name, L.LSTM(x, cont, num_output=sizes["hidden"], **fields))


def _embed(n: NetSpec, name: str, bottom: Top, words: int, sizes: _Sizes) -> Top:
    fields = dict(num_output=sizes["hidden"], bias_term=False, weight_filler=_UNIFORM)
    return named(n, name, L.Embed(bottom, input_dim=words, **fields))


def _product(n: NetSpec, name: str, x: Top, outputs: int, axis: int, **fields: Any) -> Top:
    return named(n, name, L.InnerProduct(x, num_output=outputs, axis=axis, weight_filler=_UNIFORM, **fields))


def _shaped(n: NetSpec, name: str, x: Top, *dims: int) -> Top:
    return named(n, name, L.Reshape(x, shape=dict(dim=dims)))


# ParaX, section 5.4.2: 8 layers each of 128, batches of 64 of IWSLT 2015. It states neither words nor steps: the words
# are those of English and Vietnamese in Luong and Manning's files of that task, 25 steps are ours, and so is the rate.
GNMT = TranslationModel(
    name="gnmt",
    title="GNMT",
    paper="Wu et al. 2016, with ParaX's 8 layers of 128",
    body=_body,
    shape=(25,),
    parameters=6_975_901,
    classes=7709,
    batch=64,
    test_batch=50,
    source="examples/gnmt/{}.txt",
    sizes=dict(hidden=128, layers=8, steps=25, source_words=17_191),
    solver_fields=dict(
        ADAM, base_lr=0.001, clip_gradients=5.0, max_iter=25_000, test_iter=[20], test_interval=1000, display=100,
        snapshot=5000,
    ),
)  # fmt: skip
