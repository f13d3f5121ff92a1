"""Presets: the records that each stands for, what has precedence over it, and a run that equals one with its flags."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from bad_input import trainable

import scaffe
from readers import Reading
from scaffe import Compute, Instances, Run
from scaffe.cli import main, parser
from scaffe.commands.running import settings
from scaffe.parallel.world import open_world
from scaffe.proto.files import read_solver, read_weights
from scaffe.training.presets import PRESETS, find, table
from scaffe.training.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
TRAIN = "train", "--solver", "solver.prototxt"
CPU = Compute(device="cpu")
EXPECTED = {
    "numa-caffe": Settings(CPU, instances=Instances("numa", gather="tree:2")),
    "singlecaffe": Settings(CPU, instances=Instances("core", gather="slices")),
    "parax": Settings(CPU, instances=Instances("core", gather="server")),
    "s-caffe": Settings(run=Run("SC-OBR", "reduce-bcast", "cb-8", drive="helper", bucket_bytes="0")),
    "swcaffe": Settings(
        Compute(device="cpu", plan="timed"),
        Run("SC-B", "allreduce", "halving", bucket_bytes="inf"),
        Instances("numa", gather="tree:3"),
        Reading(threads=1, prefetch=1),
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return trainable(tmp_path, monkeypatch)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the rank at most two cores, over whose instances the small batch can be divided."""
    world = open_world()
    monkeypatch.setattr(world, "cores", world.cores[:2])
    monkeypatch.setattr(world, "places", [(world.host, world.cores)])


def given(*words: object) -> Settings:
    """Return the settings of `scaffe train` with these flags."""
    return settings(parser().parse_args([*TRAIN, *map(str, words)]))


def test_each_system_has_a_preset_whose_values_are_known() -> None:
    assert PRESETS.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_its_flags_and_its_records_are_the_same_settings(name: str) -> None:
    words = str(find(name)).split()
    assert len(set(words[::2])) == len(words[::2])  # no flag is given twice
    assert find(name).settings == given(*words) == given("--preset", name) == EXPECTED[name]
    find(name).settings.run.check_reduce()


def test_a_file_has_precedence_over_a_preset_and_a_flag_over_both(folder: Path) -> None:
    Path("run.toml").write_text('workflow = "SC-OB"\nreduce = "chain"\n[reading]\nthreads = 2\n')
    chosen = given("--preset", "s-caffe", "--run-config", "run.toml", "--reduce", "binomial", "--gather", "slices")
    run = Run("SC-OB", "reduce-bcast", "binomial", drive="helper", bucket_bytes="0")
    assert chosen == Settings(run=run, instances=Instances(gather="slices"), reading=Reading(threads=2))


def test_an_unknown_preset_is_an_error_that_lists_the_known_ones(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*TRAIN, "--preset", "horovod"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    with pytest.raises(scaffe.ScaffeError) as caught:
        scaffe.get_solver("solver.prototxt", preset="horovod")
    assert str(caught.value) == "unknown preset 'horovod'; known: numa-caffe singlecaffe parax s-caffe swcaffe"
    assert "--preset" in error and "'horovod'" in error and all(name in error for name in PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_run_with_the_printed_flags_equals_one_with_the_preset(
    name: str, folder: Path, two_cores: None, capsys: pytest.CaptureFixture[str]
) -> None:
    once = weights("--preset", name, "--deterministic")
    printed = re.search(rf"\] Preset {name}: (.*)\n", capsys.readouterr().err)
    assert printed
    again = weights(*printed[1].split(), "--deterministic")
    assert "Preset" not in capsys.readouterr().err
    alone = weights()
    for one, same, close in zip(once, again, alone, strict=True):
        np.testing.assert_array_equal(one, same)
        np.testing.assert_allclose(one, close, rtol=1e-5, atol=1e-6)  # any division of the batch trains alike


def weights(*flags: str) -> list[np.ndarray]:
    """Return the parameters that `scaffe train` with these flags writes."""
    assert main([*TRAIN, *flags]) == 0
    net = read_weights("snap_iter_4.caffemodel")
    for file in Path().glob("snap_iter_*"):
        file.unlink()
    return [np.array(blob.data, np.float32) for layer in net.layer for blob in layer.blobs]


def test_a_keyword_replaces_that_record_of_a_preset(folder: Path) -> None:
    solver = scaffe.get_solver(read_solver("solver.prototxt"), preset="swcaffe", compute=CPU)
    expected = EXPECTED["swcaffe"]
    assert solver.job.settings == Settings(CPU, expected.run, expected.instances, expected.reading)
    solver.close()


def test_the_documentations_table_is_printed_by_the_module() -> None:
    assert table() in (DOCS / "papers.md").read_text(), "paste what python -m scaffe.training.presets prints"
