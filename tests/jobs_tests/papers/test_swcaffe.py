"""swCaffe's models against closed forms and counts, and its measurements in short."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]

FAST = 1e30


def test_onednn_s_passes_are_timed_with_columns_and_without(tmp_path: Path) -> None:
    figure = module("swcaffe_4")
    if module("core_rate").core_rate("float32") is None:
        pytest.skip("oneDNN is not installed")
    found = figure.layer_seconds(figure.Row(8, 16, 12, ()), tmp_path, rounds=1)
    assert list(found) == [figure.DIRECT, figure.COLUMNS]
    assert all(len(each) == 3 and min(each) > 0 for each in found.values())


def test_winners_are_counted_where_both_plans_can_be_had() -> None:
    figure = module("swcaffe_4")
    assert len(list(figure.configurations())) == 32
    ways = {figure.DIRECT: [1.0] * 3, figure.COLUMNS: [1.5] * 3}
    found = figure.winners({"layers": dict.fromkeys(figure.TABLE_2, ways)})
    assert figure.counts(found) == (32, 22) and figure.same(found) == 22


def test_the_pieces_of_a_mini_batch_are_those_counted_unit_by_unit() -> None:
    figure = module("swcaffe_5")
    for start in (0, 1, 255, 256, 257, 1023, 1024 * 31 + 700):
        units = Counter((start + k) // 1024 % 32 for k in range(768))
        assert Counter(dict(figure.pieces(start))) == units
        assert len(units) == (1 if start % 1024 <= 256 else 2)


def test_random_mini_batches_begin_at_images_and_end_in_the_file() -> None:
    figure = module("swcaffe_5")
    ends = SimpleNamespace(randrange=lambda most: most - 1), SimpleNamespace(randrange=lambda most: 0)
    last, first = (figure.at_random(1, end)[0] for end in ends)
    assert first == 0 and last % 3 == 0 and last + 768 == 3 * (1_281_167 - 1)  # units of an image: 0.75 MB of 256 KB
    assert figure.at_random(1, SimpleNamespace(randrange=lambda most: 1)) == [3]


def test_a_convolution_by_columns_writes_them_and_multiplies_in_each_pass_and_group() -> None:
    figure = module("swcaffe_9")
    window = SimpleNamespace(out=(5, 6))
    layer = SimpleNamespace(outputs=4, group=2, blobs=[SimpleNamespace(shape=(4, 3, 2, 2))], window=window)
    m, k, n = 2, 12, 30 * 128
    moved = 4 * (k * n + m * n + n * k + m * k)  # columns; then both factors and the result
    found = figure.explicit_seconds(layer, 3, FAST, 1.0), figure.explicit_seconds(layer, 3, 1.0, FAST)
    assert found == pytest.approx((3 * 2 * moved / 128, 3 * 2 * 2 * m * n * k / 128))


def test_a_product_of_few_rows_waits_for_memory() -> None:
    figure = module("swcaffe_9")
    peak, memory = 742.4e9, 28e9
    assert figure.product_seconds(1e3, 1e3, 1e3, peak, memory) == pytest.approx(2e9 / peak)
    assert figure.product_seconds(32, 1e6, 32, peak, memory) == pytest.approx(4 * (64e6 + 1024) / memory)


def test_renumbering_gains_what_the_equations_say() -> None:
    ratio = module("swcaffe_7").ratio
    assert ratio(8, 4, 4) == pytest.approx(19 / 10) and ratio(8, 4, 1) == 1
    assert ratio(256, 64, 4) == pytest.approx((63 + 192 * 4) / (252 + 3 * 4))


def test_one_fitted_exchange_gives_its_own_speedup_and_nominal_rates_more() -> None:
    figure = module("swcaffe_10")
    assert figure.speedup(1024, 2.0, figure.exchange_of(1024, 2.0, 715.45)) == pytest.approx(715.45)
    found = figure.FIGURE.model({})
    assert found["fitted"][0]["value"] == pytest.approx(715.45)
    small = figure.speedup(1024, 64 / 94.17 / 0.9, figure.FIGURE.value("exchange"))  # a smaller batch has a lower rate
    assert found["fitted"][2]["high"] == pytest.approx(small) and found["fitted"][0]["high"] == pytest.approx(715.45)
    assert all(nominal > fitted["high"] for nominal, fitted in zip(found["nominal"], found["fitted"], strict=True))
