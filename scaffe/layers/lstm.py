"""LSTM: long short-term memory over sequences."""

from __future__ import annotations

from typing import Any

from scaffe.layers.layer import register
from scaffe.layers.lstm_unit import step, step_back
from scaffe.layers.recurrent import Recurrent


class LSTM(Recurrent):
    """y_t, c_t = LSTMUnit(c_(t-1), W_x x_t + W_h h_(t-1) + b, cont_t), h_t = y_t. Bottoms and tops: see Recurrent.

    A step's pre-activations (N x 4 D) are the gates' inputs of an LSTMUnit. The state is the hidden values h and the
    cells c. Donahue et al. 2015, section 3.1, after Zaremba and Sutskever 2014.
    """

    width = 4
    states = 2
    bottoms = (2, 5)
    tops = (1, 3)

    def step(self, t: int, cont: Any) -> None:
        (_, before), (hidden, cell) = self.state[:, t], self.state[:, t + 1]
        step(self.xp, self.pre[t], cont, before, cell, hidden)

    def finish(self, hidden: Any, y: Any) -> None:
        y[...] = hidden

    def begin_back(self, hidden: Any, dy: Any) -> Any:
        self.dcell: Any = 0
        return dy

    def step_back(self, t: int, dhidden: Any, dpre: Any) -> None:
        before, cell = self.state[1, t : t + 2]
        self.dcell = step_back(self.xp, self.pre[t], before, cell, self.dcell, dhidden, dpre)


register("LSTM", LSTM)
