"""Pictures and classes: found, looked at, and divided."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from drawn_pictures import draw
from PIL import Image

from scaffe.errors import ScaffeError
from scaffe.fine_tuning.pictures import Look, Picture, Pictures, find, look, mean_of, split


def test_each_folder_is_a_class_in_order(tmp_path):
    draw(tmp_path / "p", ("owl", "ant"), 2)
    (tmp_path / "p/owl/deep").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "p/owl/deep/a b.jpg")
    (tmp_path / "p/owl/notes.txt").write_text("no picture")
    (tmp_path / "p/.hidden").mkdir()
    (tmp_path / "p/notes").mkdir()
    found = find(str(tmp_path / "p"))
    assert found.classes == ["ant", "owl"]
    assert [one.path for one in found.files] == [
        "ant/000.png", "ant/001.png", "owl/000.png", "owl/001.png", "owl/deep/a b.jpg",
    ]  # fmt: skip


def test_numbers_are_in_their_order(tmp_path):
    draw(tmp_path / "p", ("10", "9", "2"), 1)
    assert find(str(tmp_path / "p")).classes == ["2", "9", "10"]


def test_a_list_names_files_beside_it(tmp_path):
    (tmp_path / "list").write_text("a b.png cat\n\nsub/c.png dog\n")
    found = find(str(tmp_path / "list"))
    assert found == Pictures(str(tmp_path), ["cat", "dog"], [Picture("a b.png", 0), Picture("sub/c.png", 1)])


@pytest.mark.parametrize("content", ["one.png\n", "a.png cat\nb.png\n"])
def test_another_line_of_a_list_is_named(tmp_path, content):
    (tmp_path / "list").write_text(content)
    with pytest.raises(ScaffeError, match=r"list:\d: expected 'FILE CLASS', got '\w\w?\w?.png'"):
        find(str(tmp_path / "list"))


@pytest.mark.parametrize(("classes", "said"), [((), "there is none"), (("cat",), "there is one, 'cat'")])
def test_fewer_than_two_classes_are_an_error(tmp_path, classes, said):
    (tmp_path / "p").mkdir()
    draw(tmp_path / "p", classes, 2)
    with pytest.raises(ScaffeError, match=f"several classes, but {said}"):
        find(str(tmp_path / "p"))
    with pytest.raises(ScaffeError, match="no such folder, or list"):
        find(str(tmp_path / "none"))


def test_bad_pictures_are_left_out_with_a_line_each(tmp_path, caplog, monkeypatch):
    folder = draw(tmp_path / "p", count=3)
    content = (folder / "cat/000.png").read_bytes()
    (folder / "cat/000.png").write_bytes(content[: len(content) // 2])
    (folder / "dog/001.png").write_text("no picture")
    monkeypatch.setattr("scaffe.monitor.log.log.propagate", True)
    kept, seen = look(find(str(folder)))
    assert len(kept.files) == 7 and seen == Look(False, 20)
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" is left out: ")[0] for line in said] == [
        str(folder / "cat/000.png"), str(folder / "dog/001.png"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("left", "said"), [(1, "has one picture; give at least 2"), (0, "no picture that can be read")]
)
def test_a_class_of_which_too_few_are_left_is_an_error(tmp_path, left, said):
    folder = draw(tmp_path / "p", count=2)
    for i in range(2 - left):
        (folder / f"owl/{i:03d}.png").write_bytes(b"")
    with pytest.raises(ScaffeError, match=f"class 'owl' .*{said}"):
        look(find(str(folder)))


def test_grey_is_what_all_channels_have_alike(tmp_path):
    folder = draw(tmp_path / "p", grey=True, count=2)
    Image.open(folder / "cat/000.png").convert("RGB").save(folder / "cat/000.png")
    assert look(find(str(folder)))[1].grey


@pytest.mark.parametrize("count", [2, 7, 60])
def test_each_class_is_divided_alike_and_the_same_again(count):
    files = [Picture(f"{label}/{i}", label) for label in range(3) for i in range(count * (label + 1))]
    pictures = Pictures("", ["a", "b", "c"], files)
    train, held_out = split(pictures, 0.2, 1)
    assert sorted(train + held_out) == sorted(files)
    counts = Counter(one.label for one in held_out)
    assert all(abs(counts[label] - 0.2 * count * (label + 1)) <= 7 and counts[label] for label in range(3))
    assert len(held_out) <= 20 or len(held_out) % 20 == 0
    assert split(pictures, 0.2, 1) == (train, held_out) != split(pictures, 0.2, 2)


def test_the_mean_is_that_of_the_channels(tmp_path):
    for name, colour in (("a", (10, 20, 30)), ("b", (30, 40, 50))):
        (tmp_path / name).mkdir()
        Image.new("RGB", (6, 5), colour).save(tmp_path / name / "0.png")
    found = find(str(tmp_path))
    assert mean_of(found.root, found.files, (4, 4), False) == [40, 30, 20]


@pytest.mark.parametrize("name", [" owl", "o\nwl", "o\rwl"])
def test_a_name_that_no_list_can_hold_is_an_error(tmp_path, name):
    draw(tmp_path / "p", ("ant", name), 2)
    with pytest.raises(ScaffeError, match="wl.*a list can't name"):
        find(str(tmp_path / "p"))


def test_a_name_that_is_not_utf_8_is_an_error(tmp_path):
    folder = draw(tmp_path / "p", ("ant", "bee"), 2)
    (folder / "bee").rename(folder / os.fsdecode(b"b\xe9e"))
    with pytest.raises(ScaffeError, match=r"b'b.xe9e': the name is not UTF-8"):
        find(str(folder))


def test_an_earlier_result_in_the_folder_is_no_class(tmp_path):
    folder = draw(tmp_path / "p", ("ant", "bee"), 2)
    draw(folder, ("net",), 2)
    for name in ("deploy.prototxt", "transform.toml"):
        (folder / "net" / name).write_text("")
    assert find(str(folder)).classes == ["ant", "bee"]


def test_equal_numbers_have_one_order(tmp_path):
    draw(tmp_path / "p", ("1", "01", "001", "0"), 1)
    assert find(str(tmp_path / "p")).classes == ["0", "001", "01", "1"]


@pytest.mark.parametrize("unread", ["", "bee"])
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, monkeypatch, unread):
    folder = draw(tmp_path / "p", ("ant", "bee"), 2)
    scandir = os.scandir

    def refuse(path):
        if os.path.normpath(path) == str(folder / unread):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ScaffeError, match="permission denied"):
        find(str(folder))
