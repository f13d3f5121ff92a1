"""scaffe compute-image-mean on one rank: the file that it writes and the lines that it logs."""

from __future__ import annotations

import re

import nets
import numpy as np

from readers import LMDBReader, decode, read_mean
from scaffe.cli import main


def test_the_mean_is_written_and_those_of_channels_are_logged(tmp_path, capsys):
    db, out = nets.write_images(tmp_path / "db", 20, (2, 4, 4)), tmp_path / "mean"
    assert main(["compute_image_mean", "--backend", "lmdb", str(db), str(out)]) == 0
    with LMDBReader(db) as reader:
        expected = np.mean([decode(value)[0] for _, value in reader.read(range(20))], axis=0, dtype=float)
    np.testing.assert_allclose(read_mean(out), expected, rtol=1e-6)
    logged = re.findall(r"mean_value channel \[(\d)\]: (\S+)", capsys.readouterr().err)
    assert [int(channel) for channel, _ in logged] == [0, 1]
    np.testing.assert_allclose([float(value) for _, value in logged], expected.mean((1, 2)), rtol=1e-5)


def test_without_a_file_the_means_are_logged_alone(tmp_path, capsys):
    db = nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    before = sorted(tmp_path.rglob("*"))
    assert main(["compute-image-mean", str(db)]) == 0
    assert "Number of channels: 1" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
