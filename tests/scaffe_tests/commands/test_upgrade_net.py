"""scaffe upgrade-net: the form in which a net is written, and nets that can't be upgraded."""

import subprocess
import sys

import pytest
from conftest import environment
from google.protobuf import text_format

from scaffe.cli import main
from scaffe.proto import BlobProto, NetParameter
from scaffe.proto.files import read_weights

OLD = "name: 'n' layers { name: 'relu' type: RELU bottom: 'a' top: 'a' }"
NEW = "name: 'n' layer { name: 'relu' type: 'ReLU' bottom: 'a' top: 'a' }"


def as_net(text):
    return text_format.Parse(text, NetParameter())


@pytest.mark.parametrize("command", ["upgrade-net", "upgrade_net_proto_text", "upgrade_net_proto_binary"])
@pytest.mark.parametrize("old", ["text", "binary"])
@pytest.mark.parametrize(("name", "new"), [("n.prototxt", "text"), ("n.caffemodel", "binary"), ("n", "same")])
def test_a_file_is_written_as_its_name_says_or_as_it_was_read(tmp_path, command, old, name, new):
    source, target = tmp_path / "old", tmp_path / name
    source.write_bytes(OLD.encode() if old == "text" else as_net(OLD).SerializeToString())
    assert main([command, str(source), str(target)]) == 0
    named = command.removeprefix("upgrade_net_proto_")  # by Caffe's names the form is that of the tool
    if (named if named in ("text", "binary") else old if new == "same" else new) == "text":
        assert as_net(target.read_text()) == as_net(NEW)
    else:
        assert NetParameter.FromString(target.read_bytes()) == as_net(NEW)


def test_blobs_survive_the_upgrade_of_a_binary_file(tmp_path):
    old = as_net(OLD)
    old.layers[0].blobs.append(BlobProto(num=1, channels=1, height=1, width=3, data=[1, 2, 3]))
    (tmp_path / "old.caffemodel").write_bytes(old.SerializeToString())
    assert main(["upgrade_net", str(tmp_path / "old.caffemodel"), str(tmp_path / "new.caffemodel")]) == 0
    assert list(read_weights(tmp_path / "new.caffemodel").layer[0].blobs[0].data) == [1, 2, 3]


@pytest.mark.parametrize(
    "content", [b"layers { typo: 3 }", b"\x0a\x05no", b"\x89HDF\r\n\x1a\n", OLD.encode() + b"layer { }"]
)
def test_a_file_that_cannot_be_upgraded_is_an_error_of_one_line(tmp_path, content):
    (tmp_path / "old").write_bytes(content)
    command = [sys.executable, "-m", "scaffe", "upgrade-net", str(tmp_path / "old"), str(tmp_path / "new")]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=900)
    assert run.returncode == 2
    assert run.stderr.startswith(f"scaffe: {tmp_path}/old")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()
