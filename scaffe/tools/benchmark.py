"""Timing a net layer by layer, as `caffe time` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.blob import Blob
from scaffe.layers.convolution import Convolution
from scaffe.layers.inner_product import InnerProduct
from scaffe.layers.layer import Layer
from scaffe.net.net import Net
from scaffe.tools.layer_kernels import LayerKernels, layer_lines, sums

WARM_UP = 2  # passes before the clock starts: engines prepare themselves in the first


@dataclass
class Times:
    """Mean milliseconds of each layer's forward and backward, and of whole passes."""

    forward: list[float]
    backward: list[float]
    forward_pass: float
    backward_pass: float
    total: float  # of an iteration


@np.errstate(all="ignore")
def measure(net: Net, iterations: int, clock: Callable[[], float] = time.perf_counter) -> Times:
    """Run the net `iterations` times forward and backward, and return the mean times by `clock`, seconds."""
    layers, wait = len(net.layers), net.engine.wait
    net.debug_info = False  # as in caffe time
    forward, backward = np.zeros(layers), np.zeros(layers)
    for k in range(-WARM_UP, iterations):
        if k == 0:
            forward[:], backward[:], start = 0, 0, clock()
        net.clear_param_diffs()  # as training does; the first gradient then overwrites
        if net.trains:
            net.packed.changed(slice(None))  # as an update does, after which layers reorder their weights
        time_layers(range(layers), net.forward_layer, forward, wait, clock)
        net.context.batch_number += 1
        time_layers(reversed(range(layers)), net.backward_layer, backward, wait, clock)
    total = clock() - start
    scale = 1e3 / iterations
    forward *= scale
    backward *= scale
    return Times([*forward], [*backward], float(forward.sum()), float(backward.sum()), total * scale)


def time_layers(
    indices: Iterable[int],
    step: Callable[[int], None],
    seconds: np.ndarray,
    wait: Callable[[], None],
    clock: Callable[[], float],
) -> None:
    """Run `step` for each layer in turn and add its time; `wait` returns when the computation it began is done."""
    then = clock()
    for i in indices:
        step(i)
        wait()
        now = clock()
        seconds[i] += now - then
        then = now


def operations(net: Net) -> float:
    """Return the floating-point operations of a forward pass, those of convolutions and inner products."""
    return float(sum(map(layer_operations, net.layers, net.tops)))


def layer_operations(layer: Layer, tops: Sequence[Blob]) -> int:
    """Return those of one layer with these tops."""
    if not isinstance(layer, (Convolution, InnerProduct)):
        return 0
    outputs = layer.blobs[0].shape[1 if isinstance(layer, InnerProduct) and layer.transpose else 0]
    return sum(2 * top.count * layer.blobs[0].count // outputs for top in tops)


def lines(net: Net, times: Times, iterations: int, kernels: Sequence[LayerKernels] = ()) -> Iterator[str]:
    """Iterate over the lines that `caffe time` logs, images and operations a second added.

    With the layers' `kernels` there are also each layer's number format and reorders, and the sums of their times.
    """
    yield "Average time per layer: "
    for i, (layer, forward, backward) in enumerate(zip(net.layers, times.forward, times.backward, strict=True)):
        yield f"{layer.name:>10}\tforward: {forward:.6g} ms."
        yield f"{layer.name:>10}\tbackward: {backward:.6g} ms."
        yield from layer_lines(layer.name, kernels[i]) if kernels else ()
    yield f"Average Forward pass: {times.forward_pass:.6g} ms."
    yield f"Average Backward pass: {times.backward_pass:.6g} ms."
    yield f"Average Forward-Backward: {times.total:.6g} ms."
    yield f"Total Time: {times.total * iterations:.6g} ms."
    if batch := batch_size(net):
        yield f"Images per second: {1e3 * batch / times.total:.6g}"
        yield f"Images per second forward: {1e3 * batch / times.forward_pass:.6g}"
    yield f"GFLOP/s forward: {operations(net) / max(times.forward_pass, 1e-9) / 1e6:.4g}"
    if kernels:
        computing, reordering = sums(kernels)
        yield f"Kernels: {1e3 * computing:.6g} ms, reorders {1e3 * reordering:.6g} ms."


def joint_line(net: Net, times: Sequence[Times]) -> str:
    """Return the images per second of instances that were timed at the same time; the table has instance 0's times."""
    batch = 1e3 * batch_size(net)
    forward = sum(batch / one.forward_pass for one in times)
    both = sum(batch / one.total for one in times)
    return f"Images per second of {len(times)} instances: {both:.6g}, forward alone {forward:.6g}"


def batch_size(net: Net) -> int:
    """Return the number of images in a pass: axis 0 of the first blob that has several axes; 0 without one."""
    first = next((blob for blob in net.blobs.values() if len(blob.shape) > 1), None)
    return first.shape[0] if first else 0
