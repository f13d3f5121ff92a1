"""Losses from a device: agreed on an iteration late, told as if they were not, and errors that follow from them."""

from types import SimpleNamespace

import numpy as np
import pytest
from nets import lenet, solver_with
from strict_arrays import StrictGpu

import scaffe
from scaffe import engines, solvers
from scaffe.compute import Compute
from scaffe.errors import DivergedError, LabelError
from scaffe.parallel.world import open_world
from scaffe.proto import SolverParameter
from scaffe.training.losses import Fault, Losses


@pytest.fixture
def make(images):
    """Return a function that makes solvers, on a stand-in for a GPU or on the host."""
    world, made = open_world(), []

    def make(gpu, **fields):
        world.take_gpu(gpu)
        engine = "reference" if gpu is None else "auto"
        made.append(
            scaffe.Solver(solver_with(lenet(images, batch=8), **fields), world=world, compute=Compute(engine=engine))
        )
        world.take_gpu(None)
        return made[-1]

    yield make
    for solver in made:
        solver.close()


def test_every_iterations_loss_is_told_though_it_comes_late(make):
    pair = [make(gpu, average_loss=4, display=3, iter_size=2) for gpu in (StrictGpu(), None)]
    for solver in pair:
        solver.step(4)
    late, plain = (list(solver.parts.losses.last) for solver in pair)
    assert len(late) == 4
    np.testing.assert_allclose(late, plain, rtol=1e-5)


def test_a_step_from_a_device_waits_for_no_loss_but_at_the_display(make, monkeypatch):
    solver = make(StrictGpu(), display=3)
    known = []
    tell = lambda net, iter, *shown: known.append((iter, len(solver.parts.losses.last))) or shown[-1]  # noqa: E731
    monkeypatch.setattr("scaffe.training.display.iteration", tell)
    solver.param.average_loss = 100
    solver.parts.losses.last = type(solver.parts.losses.last)(maxlen=100)
    iterate = solver._iterate
    solver._iterate = lambda **how: known.append(len(solver.parts.losses.last)) or iterate(**how)
    solver.step(4)
    assert known == [0, (0, 1), 1, 1, 2, (3, 4)]


def test_a_loss_that_is_not_finite_is_told_with_its_own_iteration(make):
    solver = make(StrictGpu(), display=100)
    solver.step(1)
    blob = next(iter(solver.net.params.values()))[0]
    blob.data[...] = np.nan
    with pytest.raises(DivergedError, match="not finite at iteration 1, .*: its update was applied; lower base_lr"):
        solver.step(3)
    assert solver.iter == 2


def test_no_snapshot_is_written_of_what_has_diverged(make, tmp_path):
    solver = make(StrictGpu(), snapshot=2, snapshot_prefix=str(tmp_path / "snap"), display=0)
    solver.step(1)
    next(iter(solver.net.params.values()))[0].data[...] = np.inf
    with pytest.raises(DivergedError, match="iteration 1"):
        solver.step(1)
    assert not list(tmp_path.glob("snap_iter*"))


LABELS = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
layer { name: "y" type: "Input" top: "y" input_param { shape { dim: 4 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" top: "loss" loss_param { ignore_label: 9 } }
layer { name: "hit" type: "Accuracy" bottom: "x" bottom: "y" top: "hit" accuracy_param { ignore_label: 9 } }
"""


@pytest.fixture
def pair(tmp_path):
    """Return a net with losses over labels, by kernels and on the host."""
    (tmp_path / "net.prototxt").write_text(LABELS)
    how = engines.create(gpu=StrictGpu()), "reference"
    return [scaffe.Net(tmp_path / "net.prototxt", scaffe.TRAIN, engine=one) for one in how]


@pytest.mark.parametrize("labels", [[0, 1, 2, 0], [2, 9, 0, 9], [9, 9, 9, 9]])
def test_losses_and_hits_over_labels_that_count_are_the_hosts(pair, labels):
    x = np.random.default_rng(0).standard_normal((4, 3))
    found, expected = (net.forward(x=x, y=np.array(labels)) for net in pair)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("label", [3, -1, 1.5, np.nan])
def test_a_label_that_is_no_class_is_told_as_on_the_host_and_once(pair, label):
    for net in pair:
        with pytest.raises(LabelError) as caught:
            net.forward(x=np.zeros((4, 3)), y=np.array([0, 9, label, label]))
        assert str(caught.value) == f"layer 'loss': label {label:g} in row 2 is outside the classes 0 to 2"
        assert net.forward(y=np.array([0, 1, 9, 2]))["hit"] >= 0


def test_a_buckets_update_leaves_gradients_alone_that_are_still_to_be_computed(make):
    solver = make(StrictGpu())
    solver.net.clear_param_diffs()
    solver.parts.rule.update([4, 5], 0.1, 0)
    zeros = [parameter.blob.diff_values.is_zero for parameter in solver.net.parameters]
    assert zeros == [i not in (4, 5) for i in range(len(zeros))]


@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_gradients_are_clipped_on_the_device_as_on_the_host(tmp_path, limit):
    (tmp_path / "net.prototxt").write_text(LABELS.replace(
        'layer { name: "y"', 'layer { name: "z" type: "InnerProduct" bottom: "x" top: "z" '
        'inner_product_param { num_output: 700 } }\nlayer { name: "y"'))  # fmt: skip
    clipped = []
    for engine in (engines.create(gpu=StrictGpu()), "reference"):
        net = scaffe.Net(tmp_path / "net.prototxt", scaffe.TRAIN, engine=engine)
        net.params["z"][0].diff[...] = np.random.default_rng(1).standard_normal((700, 3))
        solvers.create(SolverParameter(type="SGD", clip_gradients=limit), net.packed, net.engine).clip()
        clipped.append(net.params["z"][0].diff.copy())
    np.testing.assert_allclose(*clipped, rtol=1e-6)
    assert (np.linalg.norm(clipped[0]) < 1) == (limit == 0.5)


LOSS = SimpleNamespace(late=False, value=lambda: 0.5)


class Diverging:
    """Two ranks, of which this one is rank 0, and a rule whose last update left what is not finite on both."""

    def __init__(self, others):
        self.others = others  # the other rank's faults
        self.has_diverged = False

    def allsums(self, mine):
        return [mine[0], self.has_diverged, *mine[2:]]

    def allgather(self, mine):
        return [mine, self.others]

    def on_root(self, work):
        return work()

    def faulty(self):
        return SimpleNamespace(layer="ip2", index=1) if self.has_diverged else None

    def counts(self):
        return []

    def check(self, counts):
        assert counts == []


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (4, "layer 'conv': broken at iteration 4, learning rate 0.01: a consequence"),
        (6, "layer 'ip2': parameter 1, or its history, is not finite at iteration 5, learning rate 0.001: the update"),
        (5, "layer 'ip2'"),
    ],
)
def test_the_first_fault_of_any_rank_is_told_with_its_own_rate(theirs, told):
    param = SolverParameter(base_lr=0.01, lr_policy="step", stepsize=5, gamma=0.1, average_loss=1)
    ranks = Diverging([Fault(theirs, "layer 'conv': broken", "a consequence")])
    losses = Losses(ranks, param, lambda: [], ranks, ranks, lambda: None)
    losses.take(LOSS, 5)
    ranks.has_diverged = True
    with pytest.raises(DivergedError, match=f"^{told}"):
        losses.take(LOSS, 6)
