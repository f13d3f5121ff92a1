"""Image lists: files read and resized as they are listed, what is wrong with one named with its line."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from readers import BatchReader, ImageReader, RecordError, Shard, SourceError, Transform, resize


def pixels(number: int, height: int = 6, width: int = 8) -> np.ndarray:
    return np.random.RandomState(number).randint(0, 256, (height, width, 3), np.uint8)


@pytest.fixture
def folder(tmp_path):
    """A folder with 0.png to 4.png, one of them with a blank in its name, and a list of them."""
    names = ["0.png", "1.png", "a 2.png", "3.png", "4.png"]
    for number, name in enumerate(names):
        Image.fromarray(pixels(number)).save(tmp_path / name)
    (tmp_path / "list").write_text("\n".join(f"{name} {7 - number}\n" for number, name in enumerate(names)))
    return tmp_path


def images(reader: ImageReader, indices) -> list[tuple[np.ndarray, int]]:
    return [reader.decode(value) for _, value in reader.read(indices)]


def test_images_and_labels_are_those_of_the_list(folder):
    reader = ImageReader(folder / "list", f"{folder}/")
    assert len(reader) == 5
    for number, (image, label) in zip([4, 2, 2], images(reader, [4, 2, 2]), strict=True):
        np.testing.assert_array_equal(image, pixels(number).transpose(2, 0, 1)[::-1])  # B G R
        assert label == 7 - number


@pytest.mark.parametrize("root", ["{}", "{}/"])
def test_the_slash_after_the_root_may_be_left_out(folder, root):
    assert len(images(ImageReader(folder / "list", root.format(folder)), range(5))) == 5


def test_names_are_put_after_the_root_as_they_are(folder):
    (folder / "list").write_text("/0.png 1\n")
    assert len(images(ImageReader(folder / "list", str(folder)), [0])) == 1


def test_images_are_resized(folder):
    [(image, _)] = images(ImageReader(folder / "list", str(folder), height=9, width=5), [1])
    np.testing.assert_array_equal(image, resize(np.ascontiguousarray(pixels(1).transpose(2, 0, 1)[::-1]), 9, 5))


def test_grey_images_have_one_channel(folder):
    [(image, _)] = images(ImageReader(folder / "list", str(folder), color=False), [0])
    weighted = pixels(0).astype(float) @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(image[0], weighted, atol=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected lines of 'FILE LABEL', got none"),
        ("\n \n", "expected lines of 'FILE LABEL', got none"),
        ("0.png 1\n\n1.png cat\n", r"list:3: expected 'FILE LABEL' with a whole number as label, got '1.png cat'"),
        ("0.png\n", "list:1: expected 'FILE LABEL'"),
        ("0.png 1.5\n", "list:1: expected 'FILE LABEL'"),
    ],
)
def test_a_list_that_is_none_is_refused(folder, text, message):
    (folder / "list").write_text(text)
    with pytest.raises(SourceError, match=message):
        ImageReader(folder / "list", str(folder))


def test_a_list_that_is_missing_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"image list .*/nowhere: no such file or directory"):
        ImageReader(tmp_path / "nowhere")


def test_a_file_that_is_missing_is_named_with_its_line(folder):
    (folder / "3.png").unlink()
    with pytest.raises(RecordError, match=r"image .*/3.png \(.*/list:7\): no such file or directory"):
        ImageReader(folder / "list", str(folder)).read(range(5))


def test_a_file_that_is_no_image_is_named_with_its_line(folder):
    (folder / "1.png").write_bytes(b"not an image")
    reader = ImageReader(folder / "list", str(folder))
    batches = BatchReader(reader, Shard.whole(5, 5), Transform())
    with pytest.raises(RecordError, match=r"image .*/1.png \(.*/list:3\): can't be decoded as an image"):
        batches.fill(0, *batches.allocate(1))


def test_an_image_of_another_size_is_named_and_alone_in_a_batch_keeps_it(folder):
    Image.fromarray(pixels(9, 4, 12)).save(folder / "1.png")
    reader = ImageReader(folder / "list", str(folder))
    batches = BatchReader(reader, Shard.whole(5, 5), Transform())
    with pytest.raises(RecordError, match=r"1.png .* is 3 x 4 x 12, but the first record is 3 x 6 x 8; crop_size"):
        batches.fill(0, *batches.allocate(1))
    alone = BatchReader(reader, Shard.whole(5, 1), Transform(scale=0.5))
    [batch] = alone.allocate(1)
    for number, shape in enumerate([(1, 3, 6, 8), (1, 3, 4, 12), (1, 3, 6, 8)]):
        alone.fill(number, batch)
        assert batch.data.shape == shape
    np.testing.assert_array_equal(batch.data[0], pixels(2).transpose(2, 0, 1)[::-1] * np.float32(0.5))
