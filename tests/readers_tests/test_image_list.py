"""Image lists: what their lines say, and what they cost."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import ImageList, SourceError

names = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1).map(
    lambda text: text.replace("\x85", "").strip() or "x"
)


@given(
    entries=st.lists(st.tuples(names, st.integers(-(2**31) + 1, 2**31 - 1)), max_size=20),
    blank=st.sampled_from(["", "\n", " \n\n"]),
    end=st.sampled_from(["\n", "\r\n", " \n"]),
    last=st.booleans(),
)
def test_entries_are_those_of_the_lines(tmp_path_factory, entries, blank, end, last):
    path = tmp_path_factory.mktemp("list") / "list.txt"
    text = "".join(f"{blank}{name} {label}{end}" for name, label in entries)
    path.write_text(text if last else text.rstrip(), encoding="utf-8", newline="")
    images = ImageList(path)
    assert [images[index] for index in range(len(images))] == entries
    lines = text.split("\n")
    assert all(lines[images.line(index) - 1].startswith(name) for index, (name, _) in enumerate(entries))


def test_names_may_hold_blanks_and_bytes_that_are_no_text(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"  two words.png   3\n\xff.png -1")
    images = ImageList(tmp_path / "list.txt")
    assert [images[0], images[1]] == [("two words.png", 3), ("\udcff.png", -1)]


def test_a_long_list_takes_little_more_memory_than_its_file(tmp_path):
    count = 8_000
    text = "".join(f"n{n % 1000:08d}/n{n % 1000:08d}_{n}.JPEG {n % 1000}\n" for n in range(count))
    (tmp_path / "list.txt").write_text(text)
    tracemalloc.start()
    try:
        images = ImageList(tmp_path / "list.txt")
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(images) == count
    assert held < len(text) + 25 * count
    assert most < len(text) + 50 * count


def test_the_line_that_is_wrong_is_named(tmp_path):
    (tmp_path / "list.txt").write_text("a.png 1\n\n  b.png  \nc.png 2\n")
    with pytest.raises(SourceError, match=r"list.txt:3: expected 'FILE LABEL' .* got 'b.png'"):
        ImageList(tmp_path / "list.txt")
