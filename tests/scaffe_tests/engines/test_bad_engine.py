"""A named engine that can't be had, and a library that refuses: what it is, which layer asked, what to install."""

import re
import shutil
import subprocess

import pytest
from bad_input import Refused, edit, train, trainable
from both_engines import build, needs_onednn

import scaffe
from scaffe import engines
from scaffe.cli import main
from scaffe.compute import Compute
from scaffe.engines.onednn import library
from scaffe.errors import LaunchError, OnednnError
from scaffe.proto import NetParameter

INSTALL = "pip install onednn-cpu-gomp (x86-64), or set SCAFFE_DNNL to a libdnnl.so.3"
OLD = """
typedef struct { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; } version;
static const version mine = {%d, 0, 0, "", 2, 0};
const version *dnnl_version(void) { return &mine; }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


@pytest.fixture
def refused(folder, capsys):
    return Refused(folder, capsys)


@pytest.fixture
def named(monkeypatch):
    """Let SCAFFE_DNNL name a file, and the library be looked up anew, now and after the test."""
    caches = library.load, engines._has_onednn, engines._announce
    for each in caches:
        each.cache_clear()
    yield lambda path: monkeypatch.setenv("SCAFFE_DNNL", str(path))
    for each in caches:
        each.cache_clear()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no/libdnnl.so.3", "can't load oneDNN from no/libdnnl.so.3: .*No such file"),
        ("net.prototxt", "can't load oneDNN from .*net.prototxt: .*invalid ELF header"),
        ("libc.so.6", "can't load oneDNN from libc.so.6: it has no dnnl_version"),
    ],
)
@pytest.mark.parametrize("command", ["train --solver solver.prototxt", "time --model net.prototxt --iterations 1"])
def test_a_named_engine_that_is_missing_is_told_with_how_to_get_it(refused, folder, named, path, said, command):
    named(folder / path if path == "net.prototxt" else path)
    line = refused(*command.split(), "--engine", "onednn")
    assert re.search(said, line)
    assert line.endswith(INSTALL)


@pytest.mark.parametrize(
    ("major", "said"),
    [(2, "is oneDNN 2.0.0, scaffe needs version 3; "), (3, "oneDNN 3.0.0, is too old: .*dnnl_engine_create")],
)
def test_a_library_that_is_too_old_is_told_with_its_version(refused, folder, named, tmp_path_factory, major, said):
    if not shutil.which("cc"):
        pytest.skip("no C compiler to make a library with")
    place = tmp_path_factory.mktemp("old")
    (place / "old.c").write_text(OLD % major)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", place / "libdnnl.so", place / "old.c"], check=True)
    named(place / "libdnnl.so")
    line = refused(*train("--engine", "onednn"))
    assert re.search(said, line)
    assert line.endswith(INSTALL)


def test_auto_goes_on_without_the_library(folder, named, capsys):
    named("no/libdnnl.so.3")
    assert main(train("--engine", "auto")) == 0
    assert (
        "Engine: reference, in numpy, since no faster one is here: can't load oneDNN from no/libdnnl.so.3"
        in capsys.readouterr().err
    )


LONG_STRIDE = """
layer {
  name: "it" type: "Convolution" bottom: "x0" top: "y"
  convolution_param { num_output: 4 kernel_size: 1 stride: 4000000000 }
}
"""
REFUSAL = (
    r"layer 'it' \(Convolution\), \[\(2, 3, 8, 8\)\] -> \[\(2, 4, 1, 1\)\]: oneDNN 3\S+: "
    r"convolution_forward_primitive_desc_create gave invalid_arguments: \(2, 3, 8, 8\) by \(4, 3, 1, 1\)"
)


@needs_onednn
def test_a_call_that_the_library_refuses_is_told_with_status_layer_and_shapes():
    net = build(LONG_STRIDE, (2, 3, 8, 8))
    with pytest.raises(OnednnError, match=REFUSAL) as error:
        net.forward()
    assert error.value.status == library.INVALID_ARGUMENTS
    assert build(LONG_STRIDE, (2, 3, 8, 8), engine="reference").forward()["y"].shape == (2, 4, 1, 1)


@needs_onednn
def test_a_command_tells_a_refusal_in_one_line(refused):
    edit("net.prototxt", 'name: "ip" type: "InnerProduct" bottom: "data" top: "ip"', LAYER_AFTER)
    line = refused(*train("--engine", "onednn"))
    assert re.search(r"^scaffe: layer 'it' \(Convolution\).* gave invalid_arguments: .*; --engine reference", line)


LAYER_AFTER = """
  name: "it" type: "Convolution" bottom: "data" top: "it"
  convolution_param { num_output: 4 kernel_size: 1 stride: 4000000000 }
}
layer {
  name: "ip" type: "InnerProduct" bottom: "it" top: "ip"
"""


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_net_s_threads_that_make_no_sense_are_refused(monkeypatch, engine):
    for threads in (-1, 1_000_000):
        with pytest.raises(LaunchError, match=f"threads must be 0 to .*, got {threads}"):
            scaffe.Net(NetParameter(), scaffe.TRAIN, compute=Compute(engine, threads=threads))
    monkeypatch.setenv("OMP_NUM_THREADS", "1000000")
    with pytest.raises(LaunchError, match="OMP_NUM_THREADS must be 1 to .*, got 1000000"):
        scaffe.Net(NetParameter(), scaffe.TRAIN, compute=Compute(engine))
