"""ParaX, figure 6: the time of compute-intensive over that of access-intensive layers, on a CPU and a GPU.

Each layer of an inference takes the start of its kernel, and the longer of its operations and its bytes, on a socket of
the paper's machine and on a P100. A layer is compute-intensive if it multiplies matrices. `LSTM` is the paper's name
for two layers of an LSTM alone: those of Word-LM (paper_word_lm.py), scaffe's model `word_lm`. Here layers of scaffe
are timed on 1 and 2 cores; an LSTM's products apart from the rest of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np
import paper_word_lm as word_lm
import shapes
from conditions import seconds_of, sgemm
from drawing import bars
from figure import ASSUMED, DERIVED, FITTED, MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, within

import scaffe
from scaffe import models
from scaffe.compute import Compute
from scaffe.layers.recurrent import Recurrent
from scaffe.tools.benchmark import time_layers
from scaffe.tools.work import layer_works

WIDTH, STEPS, BATCH, BYTES = 650, 35, 64, 4
# A step's operations: kernels, and elements that they read and write, in the width of the layer.
PRODUCTS = 2  # of the input and of the state
GATES = {
    "sum of two products": (1, 8, 4),
    "slices": (1, 4, 4),
    "sigmoids, tanh": (4, 4, 4),
    "forget gate by cell, input gate by candidate": (2, 4, 2),
    "cell": (1, 2, 1),
    "tanh of cell": (1, 1, 1),
    "output gate by it": (1, 2, 1),
}
NETS = {"ResNet-50": "resnet50", "LSTM": "word_lm", "NCF": "ncf"}
IMAGES = {"ResNet-50": 8}  # of a batch here; the others have the paper's
CORES, ROUNDS, LEAST = (1, 2), 5, 0.2  # LEAST: seconds of a round


def lstm(flops: float, bandwidth: float, start: float = 0.0) -> tuple[float, float]:
    """Return the seconds of an LSTM layer's products and of its element-wise operations, for all steps.

    A product reads weights, input and state, and writes gates.
    """
    products = 2 * BATCH * 4 * WIDTH * 2 * WIDTH
    moved = BYTES * (4 * WIDTH * 2 * WIDTH + BATCH * (2 * WIDTH + 8 * WIDTH))
    kernels = sum(count for count, _, _ in GATES.values())
    element_wise = BYTES * BATCH * WIDTH * sum(read + written for _, read, written in GATES.values())
    computing = PRODUCTS * start + max(products / flops, moved / bandwidth)
    return STEPS * computing, STEPS * (kernels * start + element_wise / bandwidth)


def with_decoder(flops: float, bandwidth: float, start: float) -> float:
    """Return Word-LM's ratio: of its LSTM layers with the decoder's product and the softmax behind it."""
    products, others = lstm(flops, bandwidth, start)
    rows = BATCH * STEPS
    decoder = 2 * rows * WIDTH * word_lm.VOCABULARY / flops
    softmax = BYTES * 2 * rows * word_lm.VOCABULARY / bandwidth  # reads and writes
    return (word_lm.LAYERS * products + start + decoder) / (word_lm.LAYERS * others + start + softmax)


def layered(name: str, flops: float, bandwidth: float, start: float = 0.0) -> tuple[float, float]:
    """Return the seconds of a net's layers with matrix products, and of the others, for a batch in inference.

    Views start no kernel.
    """
    seconds = [0.0, 0.0]
    for work in shapes.works(name, training=False).values():
        if work.moved[0] and work.units:
            seconds[not work.flops[0]] += start + BATCH * max(work.flops[0] / flops, work.moved[0] / bandwidth)
    return seconds[0], seconds[1]


def ratios(flops: float, bandwidth: float, start: float) -> dict[str, float]:
    """Return compute-intensive over access-intensive time, by net."""
    pairs = {name: layered(NETS[name], flops, bandwidth, start) for name in NETS if name != "LSTM"}
    pairs["LSTM"] = lstm(flops, bandwidth, start)
    return {name: pairs[name][0] / pairs[name][1] for name in NETS}


class Timed:
    """A net in inference on random images or constant words, whose layers are timed by kind."""

    def __init__(self, name: str, threads: int):
        made = models.get(NETS[name]).train_val(batch=IMAGES.get(name, BATCH), data="input")
        self.net = scaffe.Net(made, scaffe.TEST, compute=Compute(threads=threads))
        self.net.keep_data = False
        for blob, fill in (("data", np.random.default_rng(0).standard_normal), ("cont", np.ones)):
            if blob in self.net.blobs:
                self.net.blobs[blob].data[...] = fill(self.net.blobs[blob].shape)
        recurrent = [i for i, layer in enumerate(self.net.layers) if isinstance(layer, Recurrent)]
        works = list(layer_works(self.net).values())
        wanted = recurrent or [i for i, work in enumerate(works) if work.units]
        self.computing = [i for i in wanted if works[i].flops[0]]
        self.moving = [i for i in wanted if not works[i].flops[0]]
        self.last = max(wanted)
        self.inside = 0.0  # seconds of products inside recurrent layers
        if recurrent:
            self._watch_products()

    def _watch_products(self) -> None:
        engine: Any = self.net.engine
        multiply = engine.multiply

        def timed(*arrays: Any, **how: Any) -> None:
            start = time.perf_counter()
            multiply(*arrays, **how)
            self.inside += time.perf_counter() - start

        engine.multiply = timed

    def ratio(self) -> float:
        """Return compute-intensive over access-intensive time, over passes of LEAST seconds together."""
        seconds, begin, self.inside = np.zeros(len(self.net.layers)), time.perf_counter(), 0.0
        while not seconds.any() or time.perf_counter() - begin < LEAST:
            time_layers(range(self.last + 1), self.net.forward_layer, seconds, self.net.engine.wait, time.perf_counter)
        computing, moving = seconds[self.computing].sum(), seconds[self.moving].sum()
        if self.inside:
            computing, moving = self.inside, computing - self.inside
        return float(computing / moving)


class Intensity(Figure):
    """How much of the time bandwidth limits."""

    id, rank = "parax-6", 15
    title = "Time of compute-intensive over that of access-intensive layers"
    source = "ParaX, figure 6, section 3"
    paper = "CPU less than 1.5; GPU up to 2.7 (ResNet-50, LSTM, NCF)"
    inputs = (
        Input("CPU", 28 * 2.7e9 * 64, "operations/s", STATED, "section 2.1: 28 cores, 64 operations a cycle"),
        Input("CPU memory", 140.8e9, "bytes/s", ASSUMED, "six channels of DDR4-2933"),
        Input(
            "CPU start", 5e-6, "s of a kernel", FITTED, "28 threads begin and meet; decides whether LSTM is below 1.5"
        ),
        Input("GPU", 10.6e12, "operations/s", STATED, "section 2.1, P100"),
        Input("GPU memory", 732e9, "bytes/s", STATED, "section 2.1, P100"),
        Input("GPU start", 5e-6, "s of a kernel", FITTED, "a launch; decides whether LSTM is above 2.7"),
        Input("efficiency", 0.75, "of the peak in products", FITTED, "by parax-11, on figure 1; assumed for the GPU"),
        Input("batch", BATCH, "samples", STATED, "figure 6; ResNet-50 here has 8, of which the text has nothing"),
        Input("LSTM", WIDTH, "elements", STATED, "section 5.1: 650 neurons"),
        Input("LSTM's kernels", 11, "of a step, beside 2 products", DERIVED, "MXNet's LSTMCell, by its operations"),
        Input("steps", STEPS, "", ASSUMED, "MXNet's example, which the authors' source has; no influence on the ratio"),
        Input("NCF", 8, "factors", ASSUMED, "He et al. 2017, section 4.1: an MLP of 32, 16 and 8; MovieLens 1M"),
    )
    unexplained = (
        "Figure 6 has no numbers in the text but the two bounds. Which net has 2.7 is not said.",
        "Without the starts of kernels an LSTM's ratio is 2.4 on the CPU and 5.7 on the GPU: element-wise operations "
        "move 42 widths, products multiply 8 widths squared. So the starts, chosen as long on both, decide the checks "
        "of the LSTM and of the GPU's greatest ratio: these are no evidence. They have the LSTM's ratio lower on the "
        "GPU than on the CPU, where the text has the GPU's ratios as the greater ones.",
        "The LSTM is its two layers, as section 3 has it. Word-LM's decoder and softmax, which parax-13 has, are left "
        "out: with them the CPU's ratio is about 2.0, above 1.5, with the starts of kernels too.",
        "MXNet's BatchNorm scales too. With one pass for BatchNorm and Scale, ResNet-50's ratios are 1.32 and 3.04.",
        "With 64 pairs NCF's layers are starts of kernels alone, on both processors: its ratio is their number, 4 over "
        "11. That is no evidence, and as great on both.",
        "Two cores leave bandwidth free, so a ratio should be that of one core, as in figure 7 up to 7 threads. A net "
        "that has another one spends its time elsewhere than in products and bytes.",
        "scaffe computes BatchNorm, Scale and ReLU in one pass, and NCF's layers from Python, which takes longer than "
        "they do. An LSTM's element-wise operations here are numpy's, on one core.",
    )

    def measure(self) -> Data:
        """Return the ratios of each net on 1 and 2 cores, medians of rounds, and one core's rates."""
        ways = {(name, cores): Timed(name, cores) for name in NETS for cores in CORES}
        found = [{way: timed.ratio() for way, timed in ways.items()} for _ in range(ROUNDS + 1)][1:]
        for timed in ways.values():
            timed.net.close()
        a, b = np.ones(1 << 25, np.float32), np.ones(1 << 25, np.float32)
        return {
            "ratios": {name: [median(turn[name, cores] for turn in found) for cores in CORES] for name in NETS},
            "core": 1e9 * sgemm(),
            "core bandwidth": 3 * a.nbytes / min(seconds_of(lambda: np.add(a, b, out=a), 5)),
        }

    def model(self, measured: Data) -> Data:
        """Return the ratios by net on each processor, and on a core as here, where kernels start at once.

        "without starts" has the LSTM's ratios, "with decoder" Word-LM's.
        """
        found: Data = {"ratios": {}, "without starts": {}, "with decoder": {}}
        for name in ("CPU", "GPU"):
            rates = self.value(name) * self.value("efficiency"), self.value(f"{name} memory")
            start = self.value(f"{name} start")
            found["ratios"][name] = ratios(*rates, start)
            found["without starts"][name] = ratios(*rates, 0.0)["LSTM"]
            found["with decoder"][name] = with_decoder(*rates, start)
        here = ratios(measured["core"], measured["core bandwidth"], 0.0) if measured else {}
        return {**found, "here": here}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the CPU's bound for each net and the GPU's greatest ratio, and that the GPU's is the greater of each.

        Here: that a core's ratio is above that of a socket, and that two cores have one core's.
        """
        cpu, gpu = (modelled["ratios"][name] for name in ("CPU", "GPU"))
        for net, found in cpu.items():  # of ResNet-50 alone the starts are a small part
            yield Check(
                f"{net}: CPU, compute-intensive over access-intensive", found, high=1.5, fitted=net != "ResNet-50"
            )
        greatest = max(gpu.values())
        yield within("GPU, compute-intensive over access-intensive, greatest", greatest, 2.7, 0.2, fitted=True)
        yield Check("GPU's ratio over the CPU's, least of the nets", min(gpu[net] / cpu[net] for net in cpu), low=1.0)
        for net, (one, two) in measured.get("ratios", {}).items():
            over = one / cpu[net]
            yield Check(f"{net}: one core here over the model's socket, whose bandwidth is full", over, low=1.0)
            yield within(f"{net}: 2 cores here over one core, the same up to 7 threads", two / one, 1.0, 0.2)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the ratios."""
        each = modelled["ratios"].items()
        text = "; ".join(f"{name} " + ", ".join(f"{net} {r:.1f}" for net, r in found.items()) for name, found in each)
        for what, found in (("LSTM without starts", "without starts"), ("with decoder and softmax", "with decoder")):
            text += f"; {what} " + ", ".join(f"{name} {r:.1f}" for name, r in modelled[found].items())
        here = measured.get("ratios", {}).items()
        return "1 and 2 cores: " + ", ".join(f"{net} {one:.1f} and {two:.1f}" for net, (one, two) in here), text

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the ratios as bars."""
        left, right = figure.subplots(1, 2)
        found = modelled["ratios"]
        bars(left, [(name, found[name].values(), colour) for name, colour in (("CPU", OURS), ("GPU", MODEL))])
        left.axhline(1.5, color=PAPER, linestyle=":", label="paper: CPU below")
        left.axhline(2.7, color=PAPER, linestyle="--", label="paper: GPU up to")
        left.set(ylabel="compute-intensive over access-intensive, time", ylim=(0, 4))
        left.set_title("Modelled: inference, batch 64; starts of kernels fitted", fontsize=10)
        if measured:
            rows = [[ratio[k] for ratio in measured["ratios"].values()] for k in range(len(CORES))]
            model = [modelled["here"][net] for net in NETS]
            named = zip(("1 core, measured", "2 cores, measured"), rows, (OURS, OTHER), strict=True)
            bars(right, [*named, ("1 core, modelled without starts", model, MODEL)])
        right.set(yscale="log", ylim=(0.1, 200))
        right.set_title("Here, scaffe", fontsize=10)
        for axes in (left, right):
            axes.set_xticks(range(len(NETS)), list(NETS))


FIGURE = Intensity()
