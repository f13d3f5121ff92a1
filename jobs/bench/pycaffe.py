"""Times of programs that say `import caffe`, over those of scaffe's own calls for the same work.

    OMP_NUM_THREADS=1 python jobs/bench/pycaffe.py [--what forward,classify] [--rounds 15] [--clock cpu]

Each line is one kind of work, done both ways in turn: the medians in ms, and the ratio of the first to the second with
the 10th and the 90th percentile over the rounds. The head has the core's rate: GFLOP/s of a large matrix product.

- forward, train: a pass of LeNet, or one and back, by `net.forward` and `net.backward`; layer by layer by a plain loop.
- all: `net.forward_all` over 10,000 digits of random pixels; a loop that fills the input, and runs the layers.
- preprocess: `io.Transformer.preprocess` of an image of the input's size; the same steps in numpy.
- classify: `Classifier.predict` of one image by CaffeNet, ten crops; a pass over the same crops, already preprocessed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from tempfile import NamedTemporaryFile
from types import ModuleType

import numpy as np
from core_rate import core_rate
from iteration_times import CLOCKS, IterationTimes
from threadpoolctl import threadpool_limits

import scaffe
from scaffe import models
from scaffe.pycaffe import install

BATCH, DIGITS, SIZE = 64, 10_000, 227
MEAN = np.array([104, 117, 123], np.float32)
Work = Callable[[], object]
Pair = tuple[Work, Work]  # through `import caffe`, and by scaffe's own calls


def run_layers(net: scaffe.Net, backward: bool = False) -> None:
    """Run a net's layers one by one, and back."""
    for i in range(len(net.layers)):
        net.forward_layer(i)
    if backward:
        for i in reversed(range(len(net.layers))):
            net.backward_layer(i)


def lenet(caffe: ModuleType, phase: int) -> scaffe.Net:
    """Return LeNet over random images: for training, or with images as its input."""
    model = models.get("lenet")
    param = model.train_val(batch=BATCH, data="input") if phase == caffe.TRAIN else model.deploy(batch=BATCH)
    net = caffe.Net(param, phase)
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal(net.blobs["data"].data.shape)
    return net


def forward(caffe: ModuleType) -> Pair:
    """Return a pass of LeNet."""
    net, same = lenet(caffe, caffe.TRAIN), lenet(caffe, caffe.TRAIN)
    return net.forward, lambda: run_layers(same)


def train(caffe: ModuleType) -> Pair:
    """Return a pass of LeNet, and one back."""
    net, same = lenet(caffe, caffe.TRAIN), lenet(caffe, caffe.TRAIN)
    return lambda: (net.forward(), net.backward()), lambda: run_layers(same, backward=True)


def forward_all(caffe: ModuleType) -> Pair:
    """Return LeNet's outputs for many digits, the last batch filled up."""
    net, same = lenet(caffe, caffe.TEST), lenet(caffe, caffe.TEST)
    digits = np.random.default_rng(0).random((DIGITS, 1, 28, 28), np.float32)

    def loop() -> np.ndarray:
        data, name = same.blobs[same.inputs[0]], same.outputs[0]
        found = []
        for start in range(0, DIGITS, BATCH):
            batch = digits[start : start + BATCH]
            data.data[: len(batch)] = batch
            run_layers(same)
            found.append(same.blobs[name].data[: len(batch)].copy())
        return np.concatenate(found)

    return lambda: net.forward_all(data=digits), loop


def preprocess(caffe: ModuleType) -> Pair:
    """Return the values of CaffeNet's input for an image (227 x 227 x 3)."""
    transformer = caffe.io.Transformer({"data": (1, 3, SIZE, SIZE)})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (2, 1, 0))
    transformer.set_raw_scale("data", 255)
    transformer.set_mean("data", MEAN)
    image, mean = np.random.default_rng(0).random((SIZE, SIZE, 3), np.float32), MEAN[:, None, None]

    def by_numpy() -> np.ndarray:
        return image.transpose(2, 0, 1)[[2, 1, 0]] * np.float32(255) - mean

    return lambda: transformer.preprocess("data", image), by_numpy


def classify(caffe: ModuleType) -> Pair:
    """Return the scores of CaffeNet for ten crops of an image (256 x 256 x 3)."""
    deploy = models.get("caffenet").deploy(batch=10)
    net = caffe.Net(deploy, caffe.TEST)
    with NamedTemporaryFile("w", suffix=".prototxt") as model, NamedTemporaryFile(suffix=".caffemodel") as weights:
        model.write(str(deploy))
        model.flush()
        net.save(weights.name)
        classifier = caffe.Classifier(
            model.name, weights.name, image_dims=(256, 256), mean=MEAN, raw_scale=255, channel_swap=(2, 1, 0)
        )
    image = np.random.default_rng(0).random((256, 256, 3), np.float32)
    classifier.predict([image])
    net.blobs[net.inputs[0]].data[...] = classifier.blobs[classifier.inputs[0]].data
    return lambda: classifier.predict([image]), lambda: run_layers(net)


WORKS: dict[str, Callable[[ModuleType], Pair]] = {
    "forward": forward,
    "train": train,
    "all": forward_all,
    "preprocess": preprocess,
    "classify": classify,
}


def main() -> None:
    """Print the table."""
    a = _arguments()
    threadpool_limits(int(os.environ.get("OMP_NUM_THREADS", "1")))
    install()
    import caffe

    clock, product = CLOCKS[a.clock], core_rate("float32")
    print(f"this core: {product.best(clock):.0f} GFLOP/s in float32" if product else "this core: no oneDNN")
    print(f"{'work':12} {'import caffe, ms':>16} {'own calls, ms':>16} ratio")
    for name in a.what.split(","):
        ours, own = WORKS[name](caffe)
        times = IterationTimes({"ours": ours, "own": own}, {}, a.rounds, clock)
        ms = [f"{times.median(way) * 1e3:16.3f}" for way in ("ours", "own")]
        print(f"{name:12}", *ms, times.ratio("own", "ours"), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", default=",".join(WORKS), help="default: all of %(default)s")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each (default: %(default)s)")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: for a machine with other work")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.what.split(",") if name not in WORKS]:
        parser.error(f"unknown work {' '.join(unknown)}; known: {' '.join(WORKS)}")
    return arguments


if __name__ == "__main__":
    main()
