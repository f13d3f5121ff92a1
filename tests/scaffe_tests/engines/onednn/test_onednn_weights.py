"""Nets that share weights reorder them once for all, and compute the bits of nets that each reorder their own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_engines import AVX, AVX512, needs_bf16, needs_onednn, uses

import scaffe
from scaffe.blobs.packed import aligned_zeros
from scaffe.blobs.shared_forms import SharedForms
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn import weights as shared
from scaffe.engines.onednn.primitives import Onednn
from scaffe.net.net import Net
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.places import place
from scaffe.parallel.instances.topology import read_topology

pytestmark = [needs_onednn, pytest.mark.mpi_skip]
RATE = 0.05  # of the largest gradient
MODEL = """
force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 64 dim: 6 dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 136 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "again" type: "Convolution" bottom: "data" top: "again" param { name: "w" } param { name: "b" }
  convolution_param { num_output: 64 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "twice" type: "Convolution" bottom: "again" top: "twice" param { name: "w" } param { name: "b" }
  convolution_param { num_output: 64 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "grouped" type: "Convolution" bottom: "conv" top: "grouped"
  convolution_param { num_output: 64 group: 2 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "up" type: "Deconvolution" bottom: "grouped" top: "up"
  convolution_param { num_output: 68 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "little" type: "Convolution" bottom: "up" top: "little"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "twice" top: "ip"
  inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
"""
TOPS = "little", "ip"
NUMBERS = ["float32", pytest.param("bf16", marks=needs_bf16)]


class Replicas:
    """Nets over the same parameters, which each compute in a thread of their own, or one after the other."""

    def __init__(self, path: Path, numbers: str, size: int, forms: SharedForms | None):
        compute = Compute("onednn", threads=1, numbers=numbers)
        self.nets = [Net(str(path), context=Context(scaffe.TRAIN, compute=compute, forms=forms)) for _ in range(size)]
        self.data = self.nets[0].packed.data
        self.data[...] = np.random.default_rng(3).standard_normal(self.data.size) * 0.1
        for net in self.nets[1:]:
            net.share_with(self.nets[0])

    def step(self, i: int, passes: int = 1) -> None:
        """Run forward and backward passes of one net over random numbers of its own."""
        net, rng = self.nets[i], np.random.default_rng(i)
        net.clear_param_diffs()
        for _ in range(passes):
            net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
            net.forward()
            for top in TOPS:
                net.blobs[top].diff[...] = net.blobs[top].data
            net.backward()

    def update(self) -> list[bytes]:
        """Change the parameters in place; return all that the nets have computed."""
        found = [net.blobs[name].data.tobytes() for net in self.nets for name in TOPS]
        found += [array.tobytes() for net in self.nets for array in (net.blobs["data"].diff, net.packed.diff)]
        for net in self.nets:
            self.data -= RATE / np.abs(net.packed.diff).max() * net.packed.diff
        return found


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the net's file; its weights are large enough for several parts each."""
    monkeypatch.setattr(shared, "PART", 1 << 16)
    (path := tmp_path / "net").write_text(MODEL)
    return path


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("size", [1, 3])
def test_replicas_that_share_forms_compute_the_bits_of_others(path: Path, numbers: str, size: int) -> None:
    forms = SharedForms()
    one, other = Replicas(path, numbers, size, None), Replicas(path, numbers, size, forms)
    with Crew(place(str(size), read_topology(), oversubscribe=True)) as crew:
        for _ in range(3):
            for i in range(size):
                one.step(i)
            with forms.keep():
                crew.run(other.step)
            assert other.update() == one.update()


@pytest.mark.parametrize("numbers", NUMBERS)
def test_weights_are_reordered_once_in_an_iteration(path: Path, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    make = shared.SharedCopy._make

    def noted(copy: shared.SharedCopy, part: int) -> None:
        made.append((id(copy.form), part))
        make(copy, part)

    monkeypatch.setattr(shared.SharedCopy, "_make", noted)
    forms = SharedForms()
    replicas = Replicas(path, numbers, 3, forms)
    with Crew(place("3", read_topology(), oversubscribe=True)) as crew:
        for _ in range(3):
            made.clear()
            with forms.keep():
                crew.run(lambda i: replicas.step(i, passes=2))
            assert Counter(made) == {(id(form), part): 1 for form in forms._forms for part in range(form.parts)}
    assert max(form.parts for form in forms._forms) == 3
    weights = [part for net in replicas.nets for part in weights_of(net)]
    assert len(forms._forms) == len({part._shared.form for part in weights if part._shared})
    parameters = {form.source.ctypes.data for form in forms._forms}
    # The other layers read weights in C order: `up` in products of matrices below AVX, `grouped` below AVX-512.
    expected = ["conv", "twice"] + ["up"] * uses(AVX) + ["grouped"] * uses(AVX512) + ["ip"] * (numbers == "bf16")
    assert parameters == {replicas.nets[0].params[name][0].data.ctypes.data for name in expected}
    copied = [part for part in weights if part.desc != part._plain and part._plain.nbytes < shared.SMALL]
    assert [part for part in weights if part._copy is not None] == copied


def weights_of(net: Net) -> list[shared.WeightForm]:
    """Return a net's weights in the layouts that the passes read."""
    made: list[Any] = [layer._primitives for layer in net.layers if getattr(layer, "_primitives", None)]
    found = [getattr(one, name, None) for one in made for name in ("weights", "back_weights")]
    return [one for one in found if isinstance(one, shared.WeightForm)]


def test_outside_a_block_each_pass_reorders_its_own(path: Path) -> None:
    forms = SharedForms()
    (one,), (other,) = (Replicas(path, "float32", 1, given).nets for given in (None, forms))
    for turn in range(4):
        for net in (one, other):
            net.packed.data[...] *= 1 + turn
            net.blobs["data"].data[...] = 1
        if turn == 1:
            with forms.keep():
                other.forward()
        found = [[net.forward()[name].copy() for name in TOPS] for net in (one, other)]
        np.testing.assert_array_equal(found[0][0], found[1][0])
        np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("numbers", NUMBERS)  # bf16 reads weights in one layout forward and backward
def test_an_own_copy_from_before_a_block_is_not_read_after_it(path: Path, numbers: str) -> None:
    forms = SharedForms()
    one, other = (Replicas(path, numbers, 1, given) for given in (None, forms))
    for replicas in (one, other):
        replicas.step(0)
        replicas.data *= 2
    with forms.keep():
        other.nets[0].forward()
    one.nets[0].forward()
    for replicas in (one, other):
        replicas.nets[0].backward()
    assert other.update() == one.update()


def test_forms_follow_parameters_that_move(path: Path) -> None:
    forms = SharedForms()
    one, other = Replicas(path, "float32", 2, None), Replicas(path, "float32", 2, forms)
    for _ in range(2):
        for i in range(2):
            one.step(i)
        with forms.keep():
            for i in range(2):
                other.step(i)
        assert other.update() == one.update()
        old = other.data
        other.nets[0].move_parameters(aligned_zeros)
        other.data = other.nets[0].packed.data
        old[...] = np.nan


@pytest.mark.parametrize("shape", [(64, 64, 3, 3), (200, 100, 3, 3), (3, 64, 16, 5, 5), (20, 8000)])
def test_parts_are_whole_weights(shape: tuple[int, ...]) -> None:
    engine = Onednn(1)
    plain, numbers = engine.plain(shape), np.random.default_rng(1).standard_normal(shape, np.float32)
    target = engine.plain(shape, lib.BF16)
    forms = SharedForms()
    copy = shared.SharedCopy(engine, forms, numbers, plain, target)
    assert sum(one.shape[0] for one, _ in copy.areas) == shape[0]
    back = np.empty_like(numbers)
    copy.fetch(1).store(back)
    np.testing.assert_allclose(back, numbers, rtol=2**-8)


def test_an_array_read_in_two_orders_has_two_forms() -> None:
    engine, forms, numbers = Onednn(1), SharedForms(), np.arange(64, dtype=np.float32).reshape(8, 8)
    target, found = engine.plain((8, 8), lib.BF16), np.empty((8, 8), np.float32)
    copies = [
        shared.SharedCopy(engine, forms, numbers, engine.strided((8, 8), one), target) for one in ([8, 1], [1, 8])
    ]
    for copy, expected in zip(copies, (numbers, numbers.T), strict=True):
        copy.fetch(1).store(found)
        np.testing.assert_array_equal(found, expected)
