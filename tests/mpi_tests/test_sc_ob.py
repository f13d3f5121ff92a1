"""SC-OB (S-Caffe, section 4.2): layers compute while the parameters of those behind are under way."""

import pytest
from events import recorded, tower_solver

from scaffe.parallel.drive import Hook
from scaffe.parallel.run import Run

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture
def solver(tmp_path_factory):
    yield from tower_solver(tmp_path_factory, Run("SC-OB", bucket_bytes="0", drive="hook", reduce="chain"))


def test_each_layer_waits_for_its_own_parameters_alone(solver, monkeypatch):
    """Messages advance only where a layer waits, so that what has come by then is what it needs."""
    events, staged = recorded(monkeypatch, solver.net), solver.parts.propagate.staged
    monkeypatch.setattr(Hook, "between", lambda hook: None)
    owners = [name.removeprefix("parameters of ") for name in staged.names]
    come = {}
    for layer in solver.net.layers:

        def forward(bottom, top, layer=layer, work=layer.forward):
            come[layer.name] = {owner for stage, owner in enumerate(owners) if staged.done(stage)}
            work(bottom, top)

        monkeypatch.setattr(layer, "forward", forward)
    solver.step(2)
    assert owners == ["ip1", "ip2", "ip3", "ip4", "ip5"]
    for layer in owners:
        assert layer in come[layer]
    assert come["images"] == set() and "ip5" not in come["ip1"]
    assert events.count("reduce") == 2 and events.index("reduce") > events.index("backward ip1")
