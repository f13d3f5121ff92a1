"""Our messages against Caffe's schema, and what a wrong file is answered with."""

import csv

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from readers import datum_pb2
from scaffe.errors import PrototxtError, WeightsError
from scaffe.proto import BlobProto, NetParameter, SolverParameter, SolverState, caffe_pb2
from scaffe.proto.files import read_net, read_solver, read_solver_state, read_text, read_weights
from scaffe.proto.upgrade import upgrade_net


def descriptor(name):
    """Return a message's definition, with each field's label, type and default as written."""
    module = next(m for m in (caffe_pb2, datum_pb2) if name in m.DESCRIPTOR.message_types_by_name)
    definition = DescriptorProto()
    module.DESCRIPTOR.message_types_by_name[name].CopyToProto(definition)
    return definition


def kind_of(number, enum):
    """Return the name of a label or type: LABEL_OPTIONAL is optional."""
    return enum.Name(number).split("_", 1)[1].lower()


def same_default(ours, caffes):
    try:
        return float(ours) == pytest.approx(float(caffes), rel=1e-6)
    except ValueError:
        return ours == caffes


def test_every_field_is_caffes(cases):
    with open(cases / "caffe" / "caffe_fields.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 400
    for row in rows:
        field = {field.name: field for field in descriptor(row["message"]).field}[row["field"]]
        assert field.number == int(row["number"]), row
        assert kind_of(field.label, FieldDescriptorProto.Label) == row["label"], row
        scalar = kind_of(field.type, FieldDescriptorProto.Type)
        assert (field.type_name.removeprefix(".scaffe.") or scalar) == row["type"], row
        assert same_default(field.default_value, row["default"]), row
        assert (field.options.packed, field.options.deprecated) == (row["packed"] == "1", row["deprecated"] == "1"), row


def test_every_enum_value_is_caffes(cases):
    with open(cases / "caffe" / "caffe_enums.csv") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        outer, _, inner = row["enum"].rpartition(".")
        if outer:
            enum = next(enum for enum in descriptor(outer).enum_type if enum.name == inner)
            assert {value.name: value.number for value in enum.value}[row["value"]] == int(row["number"]), row
        else:
            enum = caffe_pb2.DESCRIPTOR.enum_types_by_name[inner]
            assert enum.values_by_name[row["value"]].number == int(row["number"]), row


OF_SSD = {"eval_type", "ap_version", "show_per_class_result"}
RECORD = {"run", "order", "weights_checksum"}


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (
            SolverParameter,
            {"lars_trust", "warmup_iter", "warmup_start_lr", "eval_type", "ap_version", "show_per_class_result"},
        ),
        (SolverState, {*RECORD, "random_seed", "position", "solver_type", "plan", "residual", "sealed", "checksum"}),
        (NetParameter, {"input_transform", "sealed", "checksum"}),
        (BlobProto, {"checksum"}),
        (caffe_pb2.RecurrentParameter, {"batch_first", "reverse"}),
    ],
)
def test_our_own_fields_are_outside_caffes_numbers(cases, message, names):
    with open(cases / "caffe" / "caffe_fields.csv") as file:
        known = {row["field"] for row in csv.DictReader(file) if row["message"] == message.DESCRIPTOR.name}
    ours = [field for field in message.DESCRIPTOR.fields if field.name not in {*known, "engine"}]  # Intel's
    assert {field.name for field in ours} == names
    assert all(field.number >= 997 for field in ours)  # those below 1000 stand before the seal, which is written last


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: 'n'\nlayer { name: 'a'\n  typo: 3 }", 3, 'no field named "typo"'),
        ("name: 'n'\nforce_backward: 'perhaps'", 2, "perhaps"),
        ("layer { name: 'a'", 1, "Expected"),
        ("\x7fELF", 1, ""),
    ],
)
def test_an_error_in_a_prototxt_names_file_and_line(tmp_path, text, line, said):
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    with pytest.raises(PrototxtError) as error:
        read_net(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_binary_file_is_not_a_prototxt(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_bytes(b"\x08\x96\xff\x00")
    with pytest.raises(PrototxtError, match="not a prototxt"):
        read_text(path, NetParameter)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(PrototxtError, match=r"missing\.prototxt: no such file"):
        read_net(tmp_path / "missing.prototxt")
    with pytest.raises(PrototxtError, match="is a directory"):
        read_net(tmp_path)
    for read in (read_weights, read_solver_state):
        with pytest.raises(WeightsError, match="missing: no such file"):
            read(tmp_path / "missing")


def test_weights_and_solver_states_are_told_apart(tmp_path):
    weights, state, empty = tmp_path / "w", tmp_path / "s", tmp_path / "e"
    net = NetParameter(name="n")
    net.layer.add(name="ip")
    weights.write_bytes(net.SerializeToString())
    state.write_bytes(SolverState(iter=3, learned_net="w").SerializeToString())
    empty.write_bytes(b"")
    assert read_weights(weights).layer[0].name == "ip"
    assert read_solver_state(state).iter == 3
    with pytest.raises(PrototxtError, match="give it to --snapshot"):
        read_weights(state)
    with pytest.raises(PrototxtError, match="given with --weights"):
        read_solver_state(weights)
    with pytest.raises(PrototxtError, match="no layers"):
        read_weights(empty)


def test_old_inputs_become_an_input_layer():
    net = NetParameter(input=["a", "b"], input_dim=[1, 2, 3, 4, 5, 6, 7, 8])
    net.layer.add(name="ip", type="InnerProduct")
    upgraded = upgrade_net(net, "x")
    assert [layer.type for layer in upgraded.layer] == ["Input", "InnerProduct"]
    assert [list(shape.dim) for shape in upgraded.layer[0].input_param.shape] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert not upgraded.input


def test_a_solver_gets_its_type_and_snapshot_prefix(tmp_path):
    path = tmp_path / "fast_solver.prototxt"
    path.write_text("solver_type: ADAGRAD")
    solver = read_solver(path)
    assert solver.type == "AdaGrad"
    assert solver.snapshot_prefix == str(tmp_path / "fast_solver")
    path.write_text(f"snapshot_prefix: '{tmp_path}'")
    assert read_solver(path).snapshot_prefix == str(tmp_path / "fast_solver")


def test_caffes_own_snapshots_are_read(cases):
    folder = cases / "caffe" / "artefacts"
    state = read_solver_state(folder / "quick_xavier_iter_25.solverstate")
    assert state.iter == 25
    assert len(state.history) == 10
    layers = {layer.name: layer for layer in read_weights(folder / "quick_xavier_init.caffemodel").layer}
    assert tuple(layers["conv1"].blobs[0].shape.dim) == (32, 3, 5, 5)
    assert isinstance(read_solver(folder / "quick_xavier_solver.prototxt"), SolverParameter)
