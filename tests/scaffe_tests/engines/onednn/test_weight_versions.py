"""Forms of weights in bfloat16 last until the weights are written, in whatever way, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from both_engines import needs_bf16

import scaffe
from scaffe import solvers
from scaffe.blobs.packed import aligned_zeros
from scaffe.compute import Compute
from scaffe.engines.onednn import weights as forms
from scaffe.net.net import Net
from scaffe.proto import SolverParameter

pytestmark = [needs_bf16, pytest.mark.mpi_skip]
MODEL = """
force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 16 dim: 6 dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "tanh" type: "TanH" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
"""
ALL, NONE = 1 << 10, 1 << 40  # for weights.SMALL: weights of all layers have lasting forms, or those of none
Results = list[bytes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (path := tmp_path / "net").write_text(MODEL)
    return path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return a list that gets the number of each part of a form that is made."""
    found: list[int] = []
    make = forms.SharedCopy._make

    def noted(copy: forms.SharedCopy, part: int) -> None:
        found.append(part)
        make(copy, part)

    monkeypatch.setattr(forms.SharedCopy, "_make", noted)
    yield found


def net_of(path: Path, small: int, monkeypatch: pytest.MonkeyPatch) -> Net:
    """Return a net, with weights of its own, whose first pass has been run."""
    monkeypatch.setattr(forms, "SMALL", small)
    net = Net(str(path), scaffe.TRAIN, compute=Compute("onednn", numbers="bf16", threads=1))
    rng = np.random.default_rng(1)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = rng.standard_normal(blob.shape) * 0.1
    both(net)
    return net


def both(net: Net) -> Results:
    """Run a forward and a backward pass; return their results."""
    net.blobs["data"].data[...] = np.random.default_rng(2).standard_normal(net.blobs["data"].shape)
    net.clear_param_diffs()
    net.forward()
    net.blobs["ip"].diff[...] = net.blobs["ip"].data
    net.backward()
    return [net.blobs["ip"].data.tobytes(), net.blobs["data"].diff.tobytes()]


def test_a_net_that_nobody_writes_makes_its_forms_once(
    path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = net_of(path, ALL, monkeypatch)
    both(net)
    made.clear()
    first = both(net)
    assert [both(net) for _ in range(3)] == [first] * 3 and not made
    net.params["ip"][0].data[...] *= 2
    assert both(net) != first and made


Write = Callable[[Net, Path], Callable[[], object]]  # prepares, returns what writes


def kept(net: Net, path: Path) -> Callable[[], object]:
    array = net.params["ip"][0].data
    return lambda: np.multiply(array, 2, out=array)


def kept_by_layers_name(net: Net, path: Path) -> Callable[[], object]:
    array = net.params["conv"][0].array
    return lambda: np.multiply(array, 2, out=array)


def kept_flat(net: Net, path: Path) -> Callable[[], object]:
    flat = net.packed.data
    return lambda: np.multiply(flat, 2, out=flat)


def doubled(net: Net, path: Path) -> Callable[[], object]:
    def write() -> None:
        net.packed.data *= 2

    return write


def file(net: Net, path: Path) -> Callable[[], object]:
    other = Net(str(path), scaffe.TRAIN)
    other.params["ip"][0].data[...] = 0.25
    other.save(f"{path}.caffemodel")
    return lambda: net.copy_from(f"{path}.caffemodel")


def moved(net: Net, path: Path) -> Callable[[], object]:
    def write() -> None:
        net.move_parameters(aligned_zeros)
        net.params["conv"][0].data[...] *= 2

    return write


def other_net(net: Net, path: Path) -> Callable[[], object]:
    other = Net(str(path), scaffe.TRAIN)
    other.share_with(net)
    array = other.params["ip"][0].data
    return lambda: np.multiply(array, 2, out=array)


def net_that_is_viewed(net: Net, path: Path) -> Callable[[], object]:
    other = Net(str(path), scaffe.TRAIN)
    net.share_with(other)
    array = other.params["ip"][0].data
    return lambda: np.copyto(array, 0.125)


WAYS: dict[str, Write] = {
    "data": lambda net, path: lambda: net.params["ip"][0].data.fill(0.5),
    "data, kept": kept,
    "array, kept": kept_by_layers_name,
    "flat data, kept": kept_flat,
    "flat data, multiplied": doubled,
    "set_data": lambda net, path: lambda: net.packed.set_data(net.packed.flat * 2),
    "file": file,
    "moved": moved,
    "another net's": other_net,
    "another net, viewed": net_that_is_viewed,
}


@pytest.mark.parametrize("way", WAYS)
def test_after_each_way_of_writing_passes_read_what_was_written(
    path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for small in (ALL, NONE):
        net = net_of(path, small, monkeypatch)
        write = WAYS[way](net, path)
        before = [both(net), both(net)]
        write()
        after = [both(net)]
        write()
        found.append([*before, *after, both(net), both(net)])
        assert before[1] != after[0]
    assert found[0] == found[1]


def test_weights_of_two_layers_are_read_as_written_through_either(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = """layer { name: "one" type: "Convolution" bottom: "data" top: "one" param { name: "w" }
        convolution_param { num_output: 16 kernel_size: 3 pad: 1 bias_term: false } }"""
    second = first.replace('"one"', '"conv"').replace('bottom: "data"', 'bottom: "one"')
    path.write_text(
        MODEL.replace(MODEL[MODEL.index('layer { name: "conv"') : MODEL.index('layer { name: "tanh"')], first + second)
    )
    found = []
    for small in (ALL, NONE):
        net = net_of(path, small, monkeypatch)
        array = net.params["conv"][0].array
        found.append([both(net), both(net)])
        for _ in range(2):
            array *= 2
            found[-1].append(both(net))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", solvers.kinds())
def test_after_an_update_of_each_rule_too(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for small in (ALL, NONE):
        net = net_of(path, small, monkeypatch)
        param = SolverParameter(type=kind, base_lr=0.1, lr_policy="fixed", clip_gradients=1.0)
        param.momentum = 0.9 if kind in ("SGD", "Nesterov", "Adam", "LARS", "AdaDelta") else 0
        rule = solvers.create(param, net.packed, net.engine)
        found.append([])
        for iteration in range(3):
            found[-1].append(both(net))
            rule.clip()
            rule.update(range(len(net.packed.parameters)), 0.1, iteration)
        assert found[-1][0] != found[-1][1] != found[-1][2]
    assert found[0] == found[1]
