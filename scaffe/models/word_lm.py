"""Word-LM: the word model of lstm.py over rows of a text, which ranks and instances divide."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

import numpy as np

from scaffe.errors import ScaffeError
from scaffe.models.lstm import LSTM, STEPS, WIDTH, body
from scaffe.models.rows import Rows, RowsModel

UNKNOWN = "<unk>"  # word 0: all words that are too rare


class TextModel(RowsModel):
    """A net over rows of a text. Inputs (rows x steps): words; cont, 0 in the first step; the next words."""

    def row(self) -> dict[str, list[int]]:
        """Return the shapes of words, cont and targets: a number for each step."""
        return dict.fromkeys(("words", "cont", "targets"), [self.sizes["steps"]])

    def of_text(self, text: str, classes: int) -> tuple[Rows, list[str]]:
        """Return the rows of a text, in its order, and the words by number: the most frequent ones behind UNKNOWN.

        Words are runs of letters, digits and underscores, in lower case, and single signs. Raise ScaffeError for a text
        that is too short for a row of each part.
        """
        found = re.findall(r"\w+|[^\w\s]", text.lower())
        steps = self.sizes["steps"]
        count = (len(found) - 1) // steps
        if count < 2:
            raise ScaffeError(f"the text has {len(found)} words; {self.name} needs {2 * steps + 1} or more")
        names = [UNKNOWN, *(word for word, _ in Counter(found).most_common(classes - 1))]
        numbers = {word: number for number, word in enumerate(names)}
        words = np.array([numbers.get(word, 0) for word in found[: count * steps + 1]], np.float32)
        cont = np.ones((count, steps), np.float32)
        cont[:, 0] = 0
        rows = {"words": words[:-1].reshape(cont.shape), "cont": cont, "targets": words[1:].reshape(cont.shape)}
        return rows, names


# ParaX, sections 5.1 and 5.4.2: two layers of 650, batches of 64. It states neither words nor steps, which are those of
# Zaremba's medium model.
WORD_LM = TextModel(
    name="word_lm",
    title="Word-LM",
    paper="ParaX's word model: Zaremba's medium one, batches of 64",
    body=partial(body, batch_first=True),
    shape=(STEPS,),
    parameters=LSTM.parameters,
    classes=LSTM.classes,
    batch=64,
    test_batch=50,
    source="examples/word_lm/{}.txt",
    sizes=dict(hidden=WIDTH, layers=2, steps=STEPS),
    solver_fields=LSTM.solver_fields,
)
