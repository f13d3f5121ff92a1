"""Derived types: which elements travel, and files that have none."""

import pytest

from collectives.bench.derived import read_derived


@pytest.mark.parametrize(
    ("text", "count", "blocks"),
    [
        ("cont", 3, [(0, 1), (1, 1), (2, 1)]),
        ("vect:4:2", 11, [(0, 2), (4, 2)]),
        ("vect:1:1", 2, [(0, 1), (1, 1)]),
        ("vect:8:8", 7, []),
    ],
)
def test_blocks_stand_at_the_stride_as_far_as_a_whole_one_fits(text, count, blocks):
    derived = read_derived(text)
    assert derived.blocks(count) == blocks
    assert derived.places(count).sum() == sum(length for _, length in blocks)


def test_a_file_s_parts_that_a_message_is_too_short_for_are_left_out(tmp_path):
    (tmp_path / "types").write_text("# three\n0,1\n\n2, 3 # in the middle\n5,9\n")
    derived = read_derived(f"indx:{tmp_path / 'types'}")
    assert derived.blocks(5) == [(0, 1), (2, 3)] and derived.blocks(14)[-1] == (5, 9)


@pytest.mark.parametrize("content", ["", "1", "1,2,3", "a,b", "0,0", "-1,2", "0,2\n1,2"])
def test_a_file_without_types_is_named(tmp_path, content):
    path = tmp_path / "types"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{path}: expected lines of a displacement, a comma and a length"):
        read_derived(f"indx:{path}")


@pytest.mark.parametrize("text", ["vect", "vect:0:0", "vect:2:3", "vect:2", "indx", "indx:", "struct:1", ""])
def test_other_texts_are_no_types(text):
    with pytest.raises(ValueError, match="expected cont, vect:STRIDE:BLOCK or indx:FILE, BLOCK at most STRIDE, got"):
        read_derived(text)
