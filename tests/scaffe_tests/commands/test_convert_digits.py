"""scaffe convert-digits: scikit-learn's digits as two databases."""

from __future__ import annotations

import sys

import pytest

from readers import LMDBReader, decode
from scaffe.cli import main


def test_the_digits_are_divided_into_two_databases(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    assert main(["convert-digits", str(tmp_path)]) == 0
    labels = []
    for part in ("train", "test"):
        with LMDBReader(tmp_path / f"digits_{part}_lmdb") as reader:
            labels += [decode(value)[1] for _, value in reader.read(range(len(reader)))]
    assert sorted(labels) == sorted(datasets.load_digits().target)


def test_without_scikit_learn_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["convert-digits", str(tmp_path)]) == 2
    assert "pip install scikit-learn" in capsys.readouterr().err
