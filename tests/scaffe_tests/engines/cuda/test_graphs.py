"""Runs of layers that a stand-in for a GPU records and repeats train as without, to the bit."""

from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from nets import solver_with
from strict_arrays import StrictGpu, xp

import scaffe
from scaffe.compute import Compute
from scaffe.engines.cuda.graphs import WARM_UP, Recorder, split
from scaffe.monitor.watching import Watching
from scaffe.net.net import Net
from scaffe.parallel.world import open_world

NET = """
layer {{ name: "digits" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.004 }}
  data_param {{ source: "{source}" batch_size: 4 backend: LMDB }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param {{ num_output: 2 kernel_size: 7 stride: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param {{ kernel_size: 2 stride: 1 }} }}
layer {{ name: "left" type: "InnerProduct" bottom: "pool1" top: "left"
  inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "left" top: "left" }}
layer {{ name: "drop" type: "Dropout" bottom: "left" top: "left" }}
layer {{ name: "right" type: "InnerProduct" bottom: "pool1" top: "right"
  inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "both" type: "Concat" bottom: "left" bottom: "right" top: "both" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "both" top: "ip2"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""


@pytest.fixture
def make(images):
    """Return a function that makes solvers on a stand-in for a GPU."""
    world, made = open_world(), []

    def make(graphs, timeline="", **fields):
        world.take_gpu(StrictGpu())
        net = NET.format(source=images)
        settings = {"compute": Compute(graphs=graphs), "watching": Watching(timeline=timeline)}
        made.append(scaffe.Solver(solver_with(net, **fields), world=world, **settings))
        world.take_gpu(None)
        return made[-1]

    yield make
    for solver in made:
        solver.close()


def assert_same_bits(one, other):
    for a, b in zip(
        (one.net.packed.data, one.net.packed.diff, *one.parts.rule.history),
        (other.net.packed.data, other.net.packed.diff, *other.parts.rule.history),
        strict=True,
    ):
        np.testing.assert_array_equal(a.get(), b.get())
    for name, blob in one.net.blobs.items():
        np.testing.assert_array_equal(blob.data, other.net.blobs[name].data, err_msg=name)


@pytest.mark.parametrize("fields", [{}, {"iter_size": 2}, {"test_iter": [2], "test_interval": 2}])
def test_a_net_that_is_repeated_trains_as_one_that_is_computed(make, fields):
    pair = [make(graphs, **fields) for graphs in ("on", "off")]
    for solver in pair:
        solver.step(2 * WARM_UP + 3)
    assert_same_bits(*pair)
    assert len(pair[0].net.engine.graphs._recordings) >= 2 and pair[1].net.engine.graphs is None
    np.testing.assert_array_equal(*(list(solver.parts.losses.last) for solver in pair))


def test_a_timeline_turns_recordings_off(make, tmp_path):
    plain, shown = make("auto"), make("auto", timeline=str(tmp_path / "run.json"))
    for solver in (plain, shown):
        solver.step(WARM_UP + 1)
    assert plain.net.engine.graphs is not None and shown.net.engine.graphs is None


def test_once_recorded_only_data_layers_are_computed_layer_by_layer(make, monkeypatch):
    solver, computed = make("on"), []
    solver.step(2 * WARM_UP + 2)  # scratch memory grows in the first
    forward = Net.forward_layer
    monkeypatch.setattr(Net, "forward_layer", lambda net, i: computed.append(net.layers[i].type) or forward(net, i))
    monkeypatch.setattr(Net, "backward_layer", lambda net, i: computed.append(net.layers[i].type))
    solver.step(2)
    assert computed == ["Data", "Data"] * 2


def test_with_callbacks_each_layer_is_computed_alone_and_trains_the_same(make):
    pair, calls = [make(graphs, iter_size=2) for graphs in ("on", "off")], []
    for solver in pair:
        solver.step(WARM_UP + 1)
    pair[0].net.after_forward(calls.append)
    pair[0].net.before_backward(calls.append)
    for solver in pair:
        solver.step(2)
    layers = range(len(pair[0].net.layers))
    assert calls == [*layers, *reversed(layers)] * 4
    assert_same_bits(*pair)


def test_what_the_host_reads_and_writes_between_iterations_counts(make):
    pair = [make(graphs) for graphs in ("on", "off")]
    for solver in pair:
        solver.step(2 * WARM_UP + 2)
        before = solver.net.blobs["ip2"].data.copy()
        solver.net.params["conv1"][0].data[...] *= 2
        solver.net.params["right"][1].data[...] += 0.5
        solver.step(1)
        assert (solver.net.blobs["ip2"].data != before).any()
        solver.net.packed.data *= 0.5
        solver.step(2)
    assert_same_bits(*pair)


def test_a_net_of_another_batch_is_recorded_anew(make):
    pair = [make(graphs) for graphs in ("on", "off")]
    for solver in pair:
        solver.step(2 * WARM_UP + 2)
        solver.net.reshape()
        solver.step(2 * WARM_UP + 2)
    assert_same_bits(*pair)


def test_recordings_end_with_the_scratch_memory_that_they_use(make):
    solver = make("on")
    solver.step(2 * WARM_UP + 2)
    recordings = solver.net.engine.graphs._recordings
    before = [*recordings.values()]
    solver.net.engine.drop_scratch()
    solver.step(1)
    assert before and not any(made is other for made in recordings.values() for other in before)


def test_what_cannot_be_recorded_is_computed_layer_by_layer_and_told(make, monkeypatch, caplog):
    pair = [make("auto"), make("off")]
    layer = pair[0].net.layer_dict["right"]
    backward = layer.backward
    monkeypatch.setattr(
        layer, "backward", lambda top, down, bottom: backward(top, down, bottom) or top[0].diff_array.get()
    )
    with caplog.at_level("INFO", logger="scaffe"):
        for solver in pair:
            solver.step(2 * WARM_UP + 3)
    assert "are computed one by one: the current stream is capturing" in caplog.text
    assert_same_bits(*pair)


def test_where_recordings_are_insisted_on_what_cannot_be_recorded_is_an_error(make, monkeypatch):
    solver = make("on")
    layer = solver.net.layer_dict["pool1"]
    forward = layer.forward
    monkeypatch.setattr(layer, "forward", lambda bottom, top: forward(bottom, top) or top[0].array.get())
    with pytest.raises(RuntimeError, match="capturing"):
        solver.step(2 * WARM_UP + 1)


def test_runs_end_before_layers_that_need_the_host_and_where_messages_begin():
    assert split([False, True, True, False, True, True, True], {5}) == [(0,), (1, 2), (3,), (4,), (5, 6)]
    assert split([True] * 3) == [(0, 1, 2)]
    assert split([]) == []


def in_turn(layer):
    """Let a data layer's tops lie in two places each, in turn, as batches do that are copied ahead."""
    forward, passes, places = layer.forward, count(), {}

    def give(bottom, top):
        forward(bottom, top)
        turn = next(passes) % 2
        for i, blob in enumerate(top):
            place = places.setdefault((i, turn), xp.zeros(blob.shape, np.float32))
            place[...] = blob.array
            blob.array = place

    layer.forward = give


def test_batches_that_lie_in_two_places_in_turn_have_a_recording_each(make):
    pair = [make(graphs) for graphs in ("on", "off")]
    for solver in pair:
        in_turn(solver.net.layers[0])
        solver.step(4 * WARM_UP + 4)
    assert_same_bits(*pair)
    assert [key[1] for key in pair[0].net.engine.graphs._recordings].count(False) == 2
    assert [key[1] for key in pair[0].net.engine.graphs._recordings].count(True) == 2


class Stream:
    """cupy.cuda.Stream, as far as it records: one whose recording has failed says so when it is ended."""

    made: list["Stream"] = []

    def __init__(self, non_blocking):
        assert non_blocking
        self.works = False
        self.made.append(self)

    def __enter__(self):
        self.is_current = True

    def __exit__(self, *error):
        self.is_current = False

    def begin_capture(self):
        assert self.is_current and not self.works
        self.works = True

    def end_capture(self):
        assert self.works
        if getattr(self, "broken", False):
            raise RuntimeError("cudaErrorStreamCaptureInvalidated")
        self.works = False
        return "a graph"


def test_a_recording_that_fails_leaves_a_stream_that_can_record():
    allocators = []
    cuda = SimpleNamespace(
        Stream=Stream,
        MemoryPool=lambda: SimpleNamespace(malloc="the recordings' own"),
        using_allocator=lambda allocator: nullcontext(allocators.append(allocator)),
    )
    prepared = []
    recorder = Recorder(SimpleNamespace(xp=SimpleNamespace(cuda=cuda)), lambda: prepared.append(Stream.made[-1].works))
    assert recorder.record(lambda: None) == "a graph"

    def fail():
        Stream.made[-1].broken = True
        raise ValueError("a layer's own error")

    with pytest.raises(ValueError, match="own error"):
        recorder.record(fail)
    assert recorder.record(lambda: None) == "a graph"
    assert len(Stream.made) == 2 and allocators == ["the recordings' own"] * 3 and prepared == [False] * 3
