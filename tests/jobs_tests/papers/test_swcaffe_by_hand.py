"""swCaffe's figures 2, 8, 9, table II and section V.B: what blocks, columns, products and stripes come to by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from paper_figures import missed, module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]

PEAK, MEMORY = 4 * 742.4e9, 4 * 28e9  # of SW26010
FAST = 1e30


def test_every_other_block_of_a_source_twice_as_long_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("swcaffe_2")
    copied = []
    monkeypatch.setattr(figure.np, "copyto", lambda here, there: copied.append((here, there)))
    monkeypatch.setattr(figure, "seconds_of", lambda call, times: [call() or 0.5])
    found = figure.copies(1 << 20, 1)
    assert set(map(tuple, found.values())) == {((1 << 20) / 0.5,)}
    for (here, there), size in zip(copied, figure.SIZES, strict=False):
        assert here.shape == there.shape == ((1 << 20) // size, size // 4)
        assert (here.strides[0], there.strides[0]) == (size, 2 * size)


def test_each_check_of_blocks_can_be_missed() -> None:
    figure = module("swcaffe_2")
    good = dict(zip(figure.SIZES, [5.0, 7.0, *[9.0] * 3, *[10.0] * 6], strict=True))

    def misses(**others: float) -> int:
        rates = good | {int(size[1:]): rate for size, rate in others.items()}
        return len(missed(figure, {"rates": list(rates.values())}))

    assert [misses(), misses(_256=7.0), misses(_4096=7.0), misses(_64=9.0)] == [0, 1, 2, 1]


def test_the_explicit_plan_takes_the_longer_of_its_product_and_of_columns_written_and_read() -> None:
    figure = module("swcaffe_4")
    least = figure.FIGURE.model({})["least"]
    columns = 2 * 4 * 9 * 3 * 224**2 / 28e9  # of 1_1, longer than its product
    product = 2 * 9 * 512 * 512 * 14**2 / 742.4e9  # of 5_1, longer than its columns
    assert (least["1_1"], least["5_1"]) == pytest.approx((128 * columns, 128 * product))
    ways = {figure.DIRECT: [2.0], figure.IM2COL: [4.0], figure.GEMM: [1.0]}
    assert figure.relative(ways, 0) == 2.0


def test_random_mini_batches_begin_at_images_and_end_in_the_file() -> None:
    figure = module("swcaffe_5")
    ends = SimpleNamespace(randrange=lambda most: most - 1), SimpleNamespace(randrange=lambda most: 0)
    last, first = (figure.at_random(1, end)[0] for end in ends)
    units = 3  # of an image: 0.75 MB of 256 KB
    assert first == 0 and last % units == 0 and last + 768 == units * (1_281_167 - 1)
    assert figure.at_random(1, SimpleNamespace(randrange=lambda most: 1)) == [units]


def test_three_quarters_of_mini_batches_meet_two_arrays_and_1024_nodes_need_76_gigabytes_a_second() -> None:
    figure = module("swcaffe_5")
    most, mean = figure.FIGURE.model({})["arrays"]
    assert (most, mean) == (2, pytest.approx((257 + 2 * 767) / 1024))  # by the unit of a stripe at which they begin
    assert figure.FIGURE.needed() == pytest.approx(1024 * 94.17 * 0.75 * 2**20)


def test_a_convolution_by_columns_writes_them_and_multiplies_in_each_pass_and_group() -> None:
    figure = module("swcaffe_9")
    window = SimpleNamespace(out=(5, 6))
    layer = SimpleNamespace(outputs=4, group=2, blobs=[SimpleNamespace(shape=(4, 3, 2, 2))], window=window)
    m, k, n = 2, 12, 30 * 128
    moved = 4 * (k * n + m * n + n * k + m * k)  # columns; then both factors and the result
    found = figure.explicit_seconds(layer, 3, FAST, 1.0), figure.explicit_seconds(layer, 3, 1.0, FAST)
    assert found == pytest.approx((3 * 2 * moved / 128, 3 * 2 * 2 * m * n * k / 128))


def test_lenet_s_layers_have_their_passes_and_rates() -> None:
    """No gradient of the data: two passes of conv1, three of conv2. Pooling moves bottoms and tops, and back both."""
    times = module("swcaffe_9").times("lenet")

    def by_columns(m: int, k: int, pixels: int) -> float:
        n = 128 * pixels
        columns, moved = 4 * k * n, 4 * (m * n + n * k + m * k)
        return (columns / MEMORY + max(2 * m * n * k / PEAK, moved / MEMORY)) / 128

    assert times["conv1"][:2] == ("convolution", pytest.approx(2 * by_columns(20, 25, 24 * 24)))
    assert times["conv2"][:2] == ("convolution", pytest.approx(3 * by_columns(50, 500, 8 * 8)))
    pooled = 4 * 20 * (24 * 24 + 12 * 12)
    kind, chip, gpu = times["pool1"]
    assert kind == "pooling" and chip == pytest.approx(MEMORY**-1 * (pooled + pooled + 4 * 20 * 24 * 24))
    assert chip / gpu == pytest.approx(288e9 / MEMORY)
    operations = 2 * 20 * 25 * 24 * 24
    blobs = 4 * (2 * 784 + 2 * 20 * 24 * 24)  # conv1 reads and writes its blobs alone on the GPU
    assert times["conv1"][2] == pytest.approx(max(2 * operations / 4.29e12, blobs / 288e9))
