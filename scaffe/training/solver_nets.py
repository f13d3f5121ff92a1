"""The nets that a solver file names: one to train, any number to test."""

from __future__ import annotations

from scaffe.context import TEST, TRAIN
from scaffe.errors import ScaffeError
from scaffe.layers.layer import check_types
from scaffe.net.graph import is_included
from scaffe.proto import NetParameter, NetState, Phase, SolverParameter
from scaffe.proto.files import read_net
from scaffe.proto.upgrade import upgrade_net

_TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


def train_net(p: SolverParameter) -> NetParameter:
    """Return the net to train. Raise ScaffeError unless exactly one field gives it."""
    given = [field for field in _TRAIN_FIELDS if p.HasField(field)]
    if len(given) != 1:
        raise ScaffeError(f"a solver needs exactly one of {', '.join(_TRAIN_FIELDS)}; got {', '.join(given) or 'none'}")
    return _load(getattr(p, given[0]), p.train_state, TRAIN)


def test_nets(p: SolverParameter) -> list[NetParameter]:
    """Return a net per test_iter: those of test_net_param and test_net, then `net` for what is left."""
    own: list[str | NetParameter] = [*p.test_net_param, *p.test_net]
    generic: list[str | NetParameter] = [getattr(p, field) for field in ("net_param", "net") if p.HasField(field)]
    left = len(p.test_iter) - len(own)
    if left < 0 or (left > 0 and not generic):
        raise ScaffeError(f"{len(p.test_iter)} test_iter for {len(own)} test nets; give one for each")
    sources = own + generic[:1] * left
    if p.test_state and len(p.test_state) != len(sources):
        raise ScaffeError(f"{len(p.test_state)} test_state for {len(sources)} test nets; give one for each, or none")
    if sources and p.test_interval <= 0:
        raise ScaffeError(f"test_interval must be above 0 to test, got {p.test_interval}")
    states = list(p.test_state) or [NetState()] * len(sources)
    return [_load(source, state, TEST) for source, state in zip(sources, states, strict=True)]


def _load(source: str | NetParameter, state: NetState, phase: int) -> NetParameter:
    if isinstance(source, str):
        net = read_net(source)
    else:
        net = NetParameter()
        net.CopyFrom(source)
        upgrade_net(net, "the solver's own net")
    given = NetState()
    given.CopyFrom(state)
    given.ClearField("phase")  # the net's use says it
    net.state.MergeFrom(given)
    if isinstance(source, str):
        whole = NetState()
        whole.CopyFrom(net.state)
        whole.MergeFrom(NetState(phase=Phase.Name(phase)))
        check_types((layer for layer in net.layer if is_included(layer, whole)), source)
    return net
