"""Bring old forms of nets and solvers to the present one, as Caffe does on load."""

from __future__ import annotations

import os

from scaffe.errors import PrototxtError
from scaffe.proto import NetParameter, SolverParameter


def upgrade_net(net: NetParameter, path: str) -> NetParameter:
    """Turn `input` fields into an Input layer. Raise PrototxtError for a net of V1 or V0 layers."""
    if net.layers:
        raise PrototxtError(
            f"{path}: 'layers {{' is an old format of Caffe's; upgrade the file with Caffe's upgrade_net_proto_text"
        )
    return _inputs_to_layer(net) if net.input else net


def _inputs_to_layer(net: NetParameter) -> NetParameter:
    """Return the net with one Input layer in front for its `input` and `input_shape` or `input_dim` fields."""
    upgraded = NetParameter()
    layer = upgraded.layer.add(name="input", type="Input", top=net.input)
    layer.input_param.shape.extend(net.input_shape)
    for i in range(0, len(net.input_dim), 4):
        layer.input_param.shape.add(dim=net.input_dim[i : i + 4])
    rest = NetParameter()
    rest.CopyFrom(net)
    for field in ("input", "input_shape", "input_dim"):
        rest.ClearField(field)
    upgraded.MergeFrom(rest)
    return upgraded


def upgrade_solver(solver: SolverParameter, path: str) -> SolverParameter:
    """Turn the old enum `solver_type` into `type`; complete a snapshot_prefix that is missing or a folder."""
    if solver.HasField("solver_type"):
        solver.type = _SOLVER_TYPES[solver.solver_type]
        solver.ClearField("solver_type")
    stem = os.path.splitext(path)[0]
    if not solver.snapshot_prefix:
        solver.snapshot_prefix = stem
    elif os.path.isdir(solver.snapshot_prefix):
        solver.snapshot_prefix = os.path.join(solver.snapshot_prefix, os.path.basename(stem))
    return solver


_SOLVER_TYPES = {
    SolverParameter.SGD: "SGD",
    SolverParameter.NESTEROV: "Nesterov",
    SolverParameter.ADAGRAD: "AdaGrad",
    SolverParameter.RMSPROP: "RMSProp",
    SolverParameter.ADADELTA: "AdaDelta",
    SolverParameter.ADAM: "Adam",
}
