"""LSTM and RNN written out step by step, as Caffe's `recurrent_param` describes them, and sequences to run them on.

`X` has T steps of N sequences, `STATIC` a value of each sequence; where `CONT` is 0 a sequence begins.
"""

import numpy as np
from gradient_check import distinct

T, N, D = 4, 3, 2
X, STATIC = distinct(T, N, 5), distinct(N, 4, seed=1)
CONT = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], float)
STATES = {"LSTM": 2, "RNN": 1}


def text(kind, fields=""):
    fillers = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
    return f'type: "{kind}" recurrent_param {{ num_output: {D} {fillers} {fields} }}'


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def unrolled(kind, blobs, x, cont, static=None, state=None):
    """Return the top and the state at the end, computed step by step."""
    blobs = [blob.array for blob in blobs]
    hidden, cell = (np.zeros((N, D)), np.zeros((N, D))) if state is None else (*state, None)[:2]
    outputs = []
    w_static, w_hidden = (blobs[2], blobs[3]) if static is not None else (None, blobs[2])
    for t in range(len(x)):
        pre = x[t].reshape(N, -1) @ blobs[0].T + blobs[1] + (cont[t][:, None] * hidden) @ w_hidden.T
        if static is not None:
            pre = pre + static.reshape(N, -1) @ w_static.T
        if kind == "RNN":
            hidden = np.tanh(pre)
            outputs.append(np.tanh(hidden @ blobs[-2].T + blobs[-1]))
        else:
            i, f, o, g = np.split(pre, 4, axis=1)
            cell = cont[t][:, None] * sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            outputs.append(hidden)
    return np.array(outputs), [hidden, cell][: STATES[kind]]
