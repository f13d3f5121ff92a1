"""The training iteration: it is the loop that a user of pycaffe would write, and the order of its steps."""

import threading

import numpy as np
import pytest
from nets import lenet, solver_with

import scaffe
from scaffe.compute import Compute
from scaffe.parallel.run import Run

RATE = 0.01


def solver_of(images, **run):
    param = solver_with(
        lenet(images, batch=8, dropout=True), iter_size=2, momentum=0, weight_decay=0, base_lr=RATE, average_loss=3
    )
    return scaffe.Solver(param, compute=Compute("reference"), run=Run(**run))


def test_iterations_of_two_passes_are_a_users_own_loop(images):
    theirs, mine = solver_of(images), solver_of(images)
    theirs.step(3)
    net, losses = mine.net, []
    for _ in range(3):
        net.clear_param_diffs()
        parts = []
        for _ in range(2):
            net.forward()
            parts.append(net.loss())
            net.backward()
        losses.append(np.mean(parts))
        for parameter in net.parameters:
            parameter.blob.data[...] -= RATE * parameter.rate * parameter.blob.diff / 2
    np.testing.assert_allclose(theirs.parts.losses.last, losses, rtol=1e-5)
    np.testing.assert_allclose(theirs.net.packed.data, net.packed.data, rtol=1e-4, atol=1e-6)
    for solver in (theirs, mine):
        solver.close()


@pytest.mark.parametrize("drive", ["hook", "helper"])
def test_the_thread_that_computes_enters_the_engine_first_and_groups_begin_where_messages_do(
    images, monkeypatch, drive
):
    solver = solver_of(images, workflow="SC-OB", drive=drive)
    steps, starts = [], []
    engine = solver.net.engine
    groups, forward = engine.groups, engine.forward
    note = lambda step: steps.append((step, threading.get_ident()))  # noqa: E731
    monkeypatch.setattr(engine, "enter", lambda: note("enter"))
    monkeypatch.setattr(engine, "forward", lambda net, group: (note("forward"), forward(net, group)))
    monkeypatch.setattr(engine, "groups", lambda net, cuts: (starts.append(set(cuts)), groups(net, cuts))[1])
    monkeypatch.setattr(solver.parts.workflow, "starts", frozenset({0, 2}))
    solver.step(1)
    layers = len(solver.net.layers)
    assert [step for step, _ in steps] == ["enter", *["forward"] * layers] * 2
    assert len({thread for _, thread in steps}) == 1
    assert starts == [{0, 2}]
    solver.close()
