"""Windows: the file's format, where a box lands in a crop, which windows a batch draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from readers import (
    ReaderError,
    RecordError,
    Shard,
    SourceError,
    WindowBatches,
    WindowReader,
    WindowTransform,
    resize,
)

ROWS, COLUMNS = 20, 30
IMAGE = np.random.RandomState(0).randint(1, 256, (3, ROWS, COLUMNS), np.uint8)


def apply(box, flip=False, image=IMAGE, **settings):
    transform = WindowTransform(**settings)
    out = np.full((3, transform.crop_size, transform.crop_size), 7, np.float32)
    transform.apply(image, np.array(box), flip, out)
    return out


def test_a_box_of_the_crops_size_is_cut_out():
    expected = IMAGE[:, 3:15, 5:17]
    np.testing.assert_array_equal(apply([5, 3, 16, 14], crop_size=12), expected)
    np.testing.assert_array_equal(apply([5, 3, 16, 14], flip=True, crop_size=12), expected[:, :, ::-1])


def test_a_box_is_warped():
    np.testing.assert_array_equal(apply([5, 3, 26, 9], crop_size=9), resize(IMAGE[:, 3:10, 5:27], 9, 9))


def test_mean_and_scale_are_applied():
    mean = np.random.RandomState(1).rand(3, 16, 16).astype(np.float32)
    box, plain = [5, 3, 16, 14], IMAGE[:, 3:15, 5:17].astype(np.float32)
    half = np.float32(0.5)
    np.testing.assert_array_equal(apply(box, crop_size=12, mean=mean, scale=0.5), (plain - mean[:, 2:14, 2:14]) * half)
    values = np.array([1, 2, 3], np.float32)[:, None, None]
    np.testing.assert_array_equal(apply(box, crop_size=12, mean_values=(1, 2, 3)), plain - values)
    np.testing.assert_array_equal(apply(box, crop_size=12, mean_values=(2,)), plain - 2)


def test_context_is_so_many_pixels_of_the_crop():
    # A box of 8 x 8 in a crop of 16 with 4 pixels of context on each side: 16 x 16 of the image, one more by rounding.
    np.testing.assert_array_equal(
        apply([10, 6, 17, 13], crop_size=16, context_pad=4), resize(IMAGE[:, 2:19, 6:23], 16, 16)
    )


def test_a_square_is_as_long_as_the_longer_side():
    # 10 x 4 around (13, 8): columns 8 to 18, rows 3 to 13.
    np.testing.assert_array_equal(
        apply([8, 6, 17, 9], crop_size=11, crop_mode="square"), resize(IMAGE[:, 3:14, 8:19], 11, 11)
    )


@pytest.mark.parametrize("flip", [False, True])
def test_what_is_outside_of_the_image_stays_zero_after_the_mean(flip):
    # 16 + 1 columns from -4 to 12, rows from 2 to 18: a strip of 16 * 4 / 17 = 3.76 columns is outside.
    out = apply([0, 6, 7, 13], flip, crop_size=16, context_pad=4, mean_values=(9,))
    out = out[:, :, ::-1] if flip else out
    assert not out[:, :, :4].any()
    np.testing.assert_array_equal(out[:, :, 4:], resize(IMAGE[:, 2:19, 0:13], 16, 12).astype(np.float32) - 9)


@given(
    st.tuples(*[st.integers(0, COLUMNS - 1)] * 2).map(sorted),
    st.tuples(*[st.integers(0, ROWS - 1)] * 2).map(sorted),
    st.integers(0, 5),
    st.sampled_from(["warp", "square"]),
    st.booleans(),
)
def test_every_box_inside_finds_its_place(columns, rows, pad, mode, flip):
    flat = np.full_like(IMAGE, 100)
    box = [columns[0], rows[0], columns[1], rows[1]]
    out = apply(box, flip, flat, crop_size=13, context_pad=pad, crop_mode=mode)
    assert set(np.unique(out)) <= {0, 100}
    assert (out[:, 6, 6] == 100).all()  # the middle of a crop is the middle of its box
    inside = out[0] == 100
    assert np.array_equal(inside, np.outer(inside.any(1), inside.any(0)))


@pytest.mark.parametrize("box", [[0, 0, 30, 5], [-1, 0, 5, 5], [0, 5, 5, 20], [9, 9, 8, 9]])
def test_a_box_that_is_not_inside_is_refused(box):
    with pytest.raises(RecordError, match=rf"x {box[0]} to {box[2]}, .* is no part of an image of 30 x 20 pixels"):
        apply(box, crop_size=9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crop_size": 0}, "windows need a crop_size of 1 or more"),
        ({"crop_size": 8, "context_pad": 4}, "context_pad 4 leaves nothing of a crop_size of 8"),
        ({"crop_size": 8, "crop_mode": "warped"}, "unknown crop_mode 'warped': expected one of warp, square"),
        ({"crop_size": 8, "mean": np.zeros((3, 7, 9))}, "the mean image is 3 x 7 x 9, but windows need 3 x 8 x 8"),
        ({"crop_size": 8, "mean_values": (1, 2)}, "there are 2 mean values: give 1 or 3"),
    ],
)
def test_settings_that_contradict_are_refused(settings, message):
    with pytest.raises(ReaderError, match=message):
        WindowTransform(**settings)


# The file, and what is drawn from it.

TEXT = """# 0
a.png
3 20 30
4
2 0.7 0 0 7 7
1 0.5 4 4 15 15
3 0.4 1 1 5 5
4 0.1 2 2 9 9
# 1
b.png 3 20 30 1
5 1 3 3 12 12
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png"):
        Image.fromarray(IMAGE.transpose(1, 2, 0)[:, :, ::-1]).save(tmp_path / name)
    (tmp_path / "windows").write_text(TEXT)
    return tmp_path


def test_windows_are_sorted_by_their_overlap(folder):
    reader = WindowReader(folder / "windows", str(folder), fg_threshold=0.5, bg_threshold=0.3)
    assert reader.foreground.labels.tolist() == [2, 1, 5]
    assert reader.foreground.images.tolist() == [0, 0, 1]
    assert reader.foreground.boxes.tolist() == [[0, 0, 7, 7], [4, 4, 15, 15], [3, 3, 12, 12]]
    assert reader.background.labels.tolist() == [0]  # whatever the file says
    assert reader.background.lines.tolist() == [8]
    assert len(reader) == 4


def batches(folder, shard, seed=1, **settings):
    reader = WindowReader(folder / "windows", str(folder), bg_threshold=0.5, cache_images=True)
    return WindowBatches(reader, shard, WindowTransform(crop_size=8, **settings), fg_fraction=0.25, seed=seed)


def filled(source, numbers):
    for number in numbers:
        [batch] = source.allocate(1)
        source.fill(number, batch)
        yield batch


def test_a_batch_is_three_quarters_background_then_foreground(folder):
    drawn = list(filled(batches(folder, Shard.whole(5, 40)), range(10)))
    for batch in drawn:
        assert not batch.label[:30].any() and (batch.label[30:] > 0).all()
    labels = np.concatenate([batch.label[30:] for batch in drawn])
    assert min(np.count_nonzero(labels == label) for label in (1, 2, 5)) > 15  # of 100
    assert len({batch.data.tobytes() for batch in drawn}) == 10


def test_windows_are_those_of_the_file(folder):
    source = batches(folder, Shard.whole(5, 40), mirror=True)
    [batch] = filled(source, [0])
    flipped = 0
    for data, label, (_, line) in zip(batch.data, batch.label, batch.keys, strict=True):
        words = TEXT.splitlines()[line - 1].split()[-6:]
        assert label == (float(words[0]) if float(words[1]) >= 0.5 else 0)
        x1, y1, x2, y2 = map(int, words[2:])
        expected = resize(IMAGE[:, y1 : y2 + 1, x1 : x2 + 1], 8, 8)
        flip = not np.array_equal(data, expected)
        np.testing.assert_array_equal(data, expected[:, :, ::-1] if flip else expected)
        flipped += flip
    assert 8 < flipped < 32


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_together_draw_what_one_would_have_drawn(folder, size):
    parts = [filled(batches(folder, Shard.strong(5, 10, r, size), mirror=True), range(4)) for r in range(size)]
    resumed = filled(batches(folder, Shard.whole(5, 10, first=20), mirror=True), range(2))
    whole = list(filled(batches(folder, Shard.whole(5, 10), mirror=True), range(4)))
    for one, *ranks in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate([rank.data for rank in ranks]), one.data)
        np.testing.assert_array_equal(np.concatenate([rank.label for rank in ranks]), one.label)
    for one, again in zip(whole[2:], resumed, strict=True):
        np.testing.assert_array_equal(again.data, one.data)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# 0", "0", "windows:1: expected '# NUMBER' before an image, got '0'"),
        ("3 20 30\n4", "3 20 30\n4.5", "windows:4: expected the number of windows, a whole number, got 4.5"),
        ("2 0.7 0", "2 high 0", "windows:5: expected a window's overlap, got 'high'"),
        ("2 0.7 0", "0 0.7 0", "windows:5: expected a label above 0 in the foreground, got 0"),
        ("5 1 3 3 12 12", "5 1 3", "windows:11: expected a window's y1, got the end of the file"),
        (TEXT, "", "there are no images in it"),
    ],
)
def test_a_file_that_is_no_window_file_is_refused_with_its_line(folder, old, new, message):
    (folder / "windows").write_text(TEXT.replace(old, new, 1))
    with pytest.raises(SourceError, match=message):
        WindowReader(folder / "windows")


def test_a_kind_that_is_missing_is_said(folder):
    (folder / "windows").write_text(TEXT.replace("0.4", "0.6").replace("0.1", "0.6"))
    with pytest.raises(SourceError, match="a batch needs 30 background windows, but there are none"):
        batches(folder, Shard.whole(5, 40))


def test_a_window_that_can_not_be_cut_is_named(folder):
    (folder / "b.png").unlink()
    source = batches(folder, Shard.whole(5, 40))
    with pytest.raises(RecordError, match=r"window in image .*/b.png \(.*/windows:11\): no such file"):
        list(filled(source, range(3)))
    Image.fromarray(IMAGE[:, :5, :5].transpose(1, 2, 0)).save(folder / "b.png")
    with pytest.raises(RecordError, match=r"b.png .*: x 3 to 12, y 3 to 12 is no part of an image of 5 x 5"):
        list(filled(source, range(3)))
