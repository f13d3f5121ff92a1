"""Upgrade of nets and solvers from Caffe's old forms to the present form, as Caffe does on load."""

from __future__ import annotations

import logging
import os

from scaffe.errors import PrototxtError
from scaffe.proto import LayerParameter, NetParameter, SolverParameter
from scaffe.proto.upgrade_v0 import is_v0, upgrade_v0
from scaffe.proto.upgrade_v1 import is_v1, old_transform, upgrade_v1

log = logging.getLogger("scaffe")


def upgrade_net(net: NetParameter, path: str) -> NetParameter:
    """Upgrade `net` to the present form, in place, and log it; return `net`.

    Raise PrototxtError, with `path`, layer and field, for a field that the present form does not have.
    """
    done = []
    for name, needed, upgrade in _STEPS:
        if needed(net):
            try:
                upgrade(net)
            except PrototxtError as error:
                raise PrototxtError(f"{path}: can't upgrade {name}: {error}") from None
            except UnicodeDecodeError as error:  # from a binary message, whose strings may hold any bytes
                raise PrototxtError(f"{path}: can't upgrade {name}: {error.object!r} is not UTF-8") from None
            done.append(name)
    if done:
        log.info("%s: upgraded to the present form: %s", path, ", ".join(done))
    _tell_ignored(net, path)
    return net


def _has_inputs(net: NetParameter) -> bool:
    return bool(net.input)


def _inputs_to_layer(net: NetParameter) -> None:
    """Replace the fields `input` and `input_shape` or `input_dim` by an Input layer, if shapes are given."""
    layer = LayerParameter(name="input", type="Input", top=net.input)
    layer.input_param.shape.extend(net.input_shape)
    if not net.input_shape:
        for i in range(0, len(net.input_dim), 4):
            layer.input_param.shape.add(dim=net.input_dim[i : i + 4])
    if net.input_shape or net.input_dim:
        _check_inputs(net)
        net.layer.insert(0, layer)
    for field in ("input", "input_shape", "input_dim"):
        net.ClearField(field)


def _check_inputs(net: NetParameter) -> None:
    field, each = ("input_shape", 1) if net.input_shape else ("input_dim", 4)
    given = len(getattr(net, field))
    if given != each * len(net.input):
        raise PrototxtError(f"{given} {field} for {len(net.input)} input; expected {each} for each")


def _has_batch_norm_specs(net: NetParameter) -> bool:
    return any(_learns_statistics(layer) for layer in net.layer)


def _learns_statistics(layer: LayerParameter) -> bool:
    """Return whether an old BatchNorm layer has multipliers for its three statistics, which are not learned."""
    specs = layer.param if layer.type == "BatchNorm" and len(layer.param) == 3 else []
    return any(spec.lr_mult or spec.decay_mult for spec in specs)


def _still_statistics(net: NetParameter) -> None:
    for layer in filter(_learns_statistics, net.layer):
        for spec in layer.param:
            spec.lr_mult = spec.decay_mult = 0


# The order matters: each step produces the input form of the next.
_STEPS = [
    ("V0 layers", is_v0, upgrade_v0),
    ("V1 layers", is_v1, upgrade_v1),
    ("input fields", _has_inputs, _inputs_to_layer),
    ("BatchNorm's param fields", _has_batch_norm_specs, _still_statistics),
]


def _tell_ignored(net: NetParameter, path: str) -> None:
    """Log the fields of present layers that have no effect; Caffe upgrades them in V1 layers only."""
    for layer in net.layer:
        if fields := ", ".join(old_transform(layer)):
            log.info("%s: layer '%s': ignored, as by Caffe, outside of transform_param: %s", path, layer.name, fields)


def upgrade_solver_type(solver: SolverParameter, path: str) -> SolverParameter:
    """Replace the old enum `solver_type` by `type` and log it. Raise PrototxtError if a solver has both."""
    if not solver.HasField("solver_type"):
        return solver
    if solver.HasField("type"):
        raise PrototxtError(f"{path}: both type and the old solver_type are given; leave out solver_type")
    solver.type = _SOLVER_TYPES[solver.solver_type]
    solver.ClearField("solver_type")
    log.info("%s: upgraded to the present form: solver_type is type '%s'", path, solver.type)
    return solver


def upgrade_solver(solver: SolverParameter, path: str) -> SolverParameter:
    """Upgrade `solver_type`; complete a `snapshot_prefix` that is missing or is a folder."""
    upgrade_solver_type(solver, path)
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
