"""Finding oneDNN, choosing an engine, and what is said when it can't be had."""

import gc
import logging
import re
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from both_engines import build, needs_onednn, run, why_no_bf16

from scaffe import engines
from scaffe.compute import Compute
from scaffe.engines.onednn import library
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.primitives import Onednn
from scaffe.errors import EngineError, OnednnError

CONVOLUTION = (
    'layer { name: "it" type: "Convolution" bottom: "x0" top: "y" convolution_param { num_output: 4 kernel_size: 3 } }'
)


@pytest.fixture
def lookups(monkeypatch):
    """Let the library and the choice of an engine be looked up anew, now and after the test."""
    caches = library.load, engines._has_onednn, engines._announce
    for each in caches:
        each.cache_clear()
    yield monkeypatch
    for each in caches:
        each.cache_clear()


@pytest.fixture
def no_library(lookups):
    lookups.delenv("SCAFFE_DNNL", raising=False)
    lookups.setattr(library, "_in_wheel", list)
    lookups.setattr(library, "_of_system", list)


def test_a_named_engine_that_is_missing_says_what_to_install(no_library):
    with pytest.raises(OnednnError, match="pip install onednn-cpu-gomp"):
        build(CONVOLUTION, (1, 3, 5, 5), engine="onednn")


@needs_onednn
def test_bf16_is_refused_exactly_where_the_library_has_no_product_of_it():
    engine = Onednn(1)
    x, w, y = (engine.any(shape, library.BF16) for shape in ((8, 32), (64, 32), (8, 64)))
    product = engine.handle, library.FORWARD_TRAINING, x, w, None, y, engine.attributes
    if why_no_bf16():
        with pytest.raises(NoFastForm):
            engine.describe("inner_product_forward", *product)
        with pytest.raises(OnednnError, match=f"^{re.escape(why_no_bf16())}; compute in float32$"):
            Onednn(1, "bf16")
    else:
        assert engine.describe("inner_product_forward", *product) and Onednn(1, "bf16")


def test_auto_without_the_library_computes_in_numpy_and_warns_once_with_what_to_install(no_library, caplog):
    with caplog.at_level(logging.INFO, "scaffe"):
        nets = [build(CONVOLUTION, (1, 3, 5, 5), engine="auto") for _ in range(2)]
    assert all(net.engine.name == "reference" for net in nets)
    found = [(record.levelname, record.getMessage()) for record in caplog.records if "Engine" in record.getMessage()]
    assert found == [("WARNING", f"Engine: reference, in numpy, since no faster one is here: {why()}")]
    assert "pip install onednn-cpu-gomp" in found[0][1]


def test_one_rank_of_a_node_warns_for_all(no_library, lookups, caplog):
    lookups.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")
    with caplog.at_level(logging.INFO, "scaffe"):
        build(CONVOLUTION, (1, 3, 5, 5), engine="auto")
    assert [record.levelname for record in caplog.records if "no faster one" in record.getMessage()] == ["INFO"]


def why():
    with pytest.raises(OnednnError) as caught:
        library.load()
    return caught.value


def test_an_unknown_engine_names_those_there_are():
    with pytest.raises(EngineError, match="unknown engine 'fast'; known engines: auto reference onednn"):
        build(CONVOLUTION, (1, 3, 5, 5), engine="fast")


@pytest.mark.parametrize("content", [None, b"not a library"])
def test_a_file_that_is_not_the_library_is_named(lookups, tmp_path, content):
    path = tmp_path / "libdnnl.so.3"
    if content:
        path.write_bytes(content)
    lookups.setenv("SCAFFE_DNNL", str(path))
    with pytest.raises(OnednnError, match=f"can't load oneDNN from {path}"):
        library.load()


def test_a_library_of_another_kind_is_refused(lookups):
    lookups.setenv("SCAFFE_DNNL", "libc.so.6")
    with pytest.raises(OnednnError, match="can't load oneDNN from libc.so.6"):
        library.load()


class Described:
    """A library whose file name says its version: its path is "MINOR.PATCH", or "bad"."""

    def __init__(self, path: str):
        if path == "bad":
            raise OnednnError("bad")
        minor, patch = map(int, path.split("."))
        self.path, self.version = path, library.Version(3, minor, patch)


def test_the_newest_library_that_can_be_used_is_taken(lookups):
    lookups.setattr(library, "Library", Described)
    assert library.newest(["2.0", "bad", "13.1", "13.0"]).path == "13.1"
    assert library.newest(["13.0", "2.9"]).path == "13.0"
    assert library.newest(["2.0", "2.00"]).path == "2.00"  # the system's is the first
    with pytest.raises(OnednnError, match="bad"):
        library.newest(["bad"])


@needs_onednn
def test_the_wheels_library_is_found_in_the_environment_and_by_its_record(lookups, tmp_path):
    lookups.delenv("SCAFFE_DNNL", raising=False)
    (found,) = library._in_wheel()
    lookups.setattr(library.sys, "prefix", str(tmp_path))
    assert library._in_wheel() == [found] and Path(found).name == library.SONAME
    lookups.setattr(library, "PACKAGE", "no-such-wheel")
    assert library._in_wheel() == []


@needs_onednn
def test_a_library_that_the_loader_finds_is_the_systems(lookups):
    lookups.setattr(library, "SONAME", library.load().path)
    assert library._of_system() == [library.load().path]
    lookups.setattr(library, "SONAME", "libdnnl.so.none")
    assert library._of_system() == []


@needs_onednn
def test_a_library_on_sycl_which_returns_before_it_has_computed_is_refused(lookups):
    path = library.load().path
    lookups.setattr(library, "SYCL", library.load().version.cpu_runtime)
    with pytest.raises(OnednnError, match="on SYCL, scaffe needs one on OpenMP or TBB; pip install onednn-cpu-gomp"):
        library.Library(path)


@needs_onednn
def test_auto_takes_onednn_and_says_so_once(lookups, caplog):
    with caplog.at_level(logging.INFO, "scaffe"):
        nets = [build(CONVOLUTION, (1, 3, 5, 5), engine="auto") for _ in range(2)]
    assert all(net.engine.name == "onednn" for net in nets)
    assert len([record for record in caplog.records if "Engine: oneDNN 3." in record.getMessage()]) == 1


@needs_onednn
def test_the_reference_engine_uses_no_library(lookups):
    lookups.setattr(library, "load", lambda: pytest.fail("loaded"))
    assert run(build(CONVOLUTION, (1, 3, 5, 5), engine="reference"))["y"].any()


@needs_onednn
def test_a_refused_call_names_its_status_and_what_was_asked():
    with pytest.raises(
        OnednnError, match=r"oneDNN 3\..*: memory_desc_create_with_tag gave invalid_arguments: x"
    ) as caught:
        library.load().create(
            "memory_desc_create_with_tag", -1, library.dims(()), library.F32, library.TAG_ANY, what="x"
        )
    assert caught.value.status == library.INVALID_ARGUMENTS


@needs_onednn
def test_nets_of_several_threads_run_side_by_side():
    """Each thread has an engine of its own; the results are those of one after the other."""
    expected = run(build(CONVOLUTION, (2, 3, 9, 9), threads=1))
    found = {}

    def work(i):
        net = build(CONVOLUTION, (2, 3, 9, 9), threads=1)
        for _ in range(20):
            found[i] = run(net)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    for result in found.values():
        for name, values in expected.items():
            np.testing.assert_array_equal(result[name], values)


@needs_onednn
def test_a_net_made_by_one_thread_runs_in_another():
    net, found = build(CONVOLUTION, (2, 3, 9, 9), threads=1), []
    expected = run(net)
    thread = threading.Thread(target=lambda: found.append(run(net)))
    thread.start()
    thread.join()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[0][name], values)


@needs_onednn
def test_a_thread_computes_with_the_ranks_number_of_threads():
    openmp = library.openmp()
    if openmp is None:
        pytest.skip("this libdnnl has threads of another kind than libgomp's")
    seen = []

    def work():
        engines.create(Compute("onednn", threads=3))
        seen.append(openmp.omp_get_max_threads())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [3]


@needs_onednn
def test_handles_are_freed_with_the_net():
    freed = []
    net = build(CONVOLUTION, (1, 3, 5, 5))
    run(net)
    weakref.finalize(net.layer_dict["it"]._primitives.pairs[0].run_forward, freed.append, True)
    del net
    gc.collect()
    assert freed
