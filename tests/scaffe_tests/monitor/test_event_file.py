"""Event files are whole records, whatever happens, in a folder that one run at a time writes to."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest
from event_files import all_events, curves, events

from scaffe.errors import ScaffeError
from scaffe.monitor.event_file import EventFiles
from scaffe.monitor.numbers import LOSS, TEST_OUTPUT, Node, Numbers, Sample


def numbers(iteration: int, value: float = 0.5, **others) -> Numbers:
    return Numbers(iteration, [Sample(LOSS, value)], **others)


def written(folder: Path, *found: Numbers) -> None:
    files = EventFiles(folder)
    files.write(found)
    files.close()


def test_records_have_their_checksums_and_values(tmp_path: Path) -> None:
    output = Sample(TEST_OUTPUT, 0.75, {"output": "accuracy", "test_net": "1"})
    graph = [Node("data", "Data", []), Node("ip", "InnerProduct", ["data"])]
    written(tmp_path, numbers(3), numbers(7, 0.25, texts={"about": "a\nb"}, nodes=graph), Numbers(9, [output]))
    (path,) = tmp_path.iterdir()
    first, *_ = found = events(path, checked=True)
    assert first.file_version == "brain.Event:2"
    assert curves(tmp_path) == {"loss/smoothed": [(3, 0.5), (7, 0.25)], "test_1/accuracy": [(9, 0.75)]}
    (text,) = [value for event in found for value in event.summary.value if value.tag == "about/text_summary"]
    assert text.metadata.plugin_data.plugin_name == "text" and text.tensor.string_val[0] == b"    a\n    b\n"
    assert b"InnerProduct" in next(event.graph_def for event in found if event.graph_def)


def test_a_run_that_goes_on_earlier_replaces_what_follows(tmp_path: Path) -> None:
    written(tmp_path, numbers(0, 4.0, begun=0), numbers(20, 3.0), numbers(40, 2.0))
    written(tmp_path, numbers(40, 2.5, begun=30), numbers(60, 1.0))
    assert curves(tmp_path) == {"loss/smoothed": [(0, 4.0), (20, 3.0), (40, 2.5), (60, 1.0)]}
    written(tmp_path, Numbers(40, begun=40), numbers(50, 0.5))  # the first point of the earlier run goes too
    assert curves(tmp_path) == {"loss/smoothed": [(0, 4.0), (20, 3.0), (50, 0.5)]}


def test_tensorboard_itself_shows_these_curves(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    written(tmp_path, numbers(0, 4.0, begun=0), numbers(20, 3.0), numbers(40, 2.0))
    written(tmp_path, numbers(40, 2.5, begun=30), numbers(60, 1.0))
    shown = accumulators.EventAccumulator(str(tmp_path))
    shown.Reload()
    points = [(point.step, point.value) for point in shown.Scalars("loss/smoothed")]
    assert points == curves(tmp_path)["loss/smoothed"]


def test_two_runs_can_not_write_to_one_folder_at_once(tmp_path: Path) -> None:
    first = EventFiles(tmp_path / "runs")
    with pytest.raises(ScaffeError, match=r"tensorboard '.*runs': another run writes there; give each run a folder"):
        EventFiles(tmp_path / "runs")
    first.close()
    second = EventFiles(tmp_path / "runs")
    (tmp_path / "runs" / "notes.txt").touch()
    assert not second.has_curves
    second.write([numbers(0)])
    assert second.has_curves
    second.close()


def test_the_numbers_of_the_next_root_wait_until_the_lost_ones_folder_is_free(tmp_path: Path) -> None:
    first = EventFiles(tmp_path / "runs")
    first.write([numbers(0, 4.0, begun=0), numbers(20, 3.0)])
    second = EventFiles(tmp_path / "runs", at_once=False)
    with pytest.raises(ScaffeError, match="another run writes there"):
        second.write([numbers(20, 2.0, begun=20)])
    first.close()
    second.write([numbers(40, 1.0)])
    with pytest.raises(ScaffeError, match="another run writes there"):
        EventFiles(tmp_path / "runs")
    second.close()
    assert curves(tmp_path / "runs")["loss/smoothed"] == [(0, 4.0), (20, 2.0), (40, 1.0)]


def test_a_full_disk_leaves_whole_records_and_the_next_numbers_are_written(tmp_path: Path, monkeypatch) -> None:
    files = EventFiles(tmp_path)
    files.write([numbers(0)])
    write = os.write

    def full(file: int, content: bytes) -> int:
        if len(content) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.write([numbers(20)])
    monkeypatch.undo()
    files.write([numbers(40)])
    files.close()
    assert curves(tmp_path)["loss/smoothed"] == [(0, 0.5), (40, 0.5)]


def test_a_begin_that_could_not_be_written_is_written_with_the_next_numbers(tmp_path: Path, monkeypatch) -> None:
    written(tmp_path, numbers(0, 4.0, begun=0), numbers(20, 3.0))
    files = EventFiles(tmp_path)

    def full(file: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for lost in (numbers(0, 2.0, begun=0, texts={"about": "a"}), numbers(10, 2.0)):
        with pytest.raises(OSError, match="No space left"):
            files.write([lost])
    monkeypatch.undo()
    files.write([numbers(30, 1.0)])
    files.write([numbers(40, 1.0)])
    files.close()
    assert curves(tmp_path) == {"loss/smoothed": [(0, 2.0), (30, 1.0), (40, 1.0)]}
    assert [v.tag for e in all_events(tmp_path) for v in e.summary.value if "about" in v.tag] == ["about/text_summary"]


@pytest.mark.parametrize("writes_before", [True, False])
def test_a_folder_that_somebody_removed_is_made_again(tmp_path: Path, writes_before: bool) -> None:
    files = EventFiles(tmp_path / "runs")
    if writes_before:
        files.write([numbers(0)])
    shutil.rmtree(tmp_path / "runs")
    files.write([numbers(20)])
    files.write([numbers(40)])
    with pytest.raises(ScaffeError, match="another run writes there"):
        EventFiles(tmp_path / "runs")
    files.close()
    assert curves(tmp_path / "runs")["loss/smoothed"] == [(20, 0.5), (40, 0.5)]


def test_a_picture_that_fails_loses_no_numbers(tmp_path: Path) -> None:
    written(tmp_path, numbers(0, pictures={"broken": lambda: bytes(1 // 0)}))
    assert curves(tmp_path)["loss/smoothed"] == [(0, 0.5)]


def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ScaffeError, match=r"^--tensorboard needs .* tensorboardX: pip install 'scaffe\[monitor\]'$"):
        EventFiles(tmp_path)


def test_a_folder_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScaffeError, match=r"^tensorboard '.*file': file exists$"):
        EventFiles(tmp_path / "file")
    with pytest.raises(ScaffeError, match=r"^tensorboard '.*file/runs': not a directory$"):
        EventFiles(tmp_path / "file" / "runs")


def test_a_folder_without_permission_is_an_error_and_is_unlocked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda *given: False)  # root may write anywhere
    with pytest.raises(ScaffeError, match="no permission to write in"):
        EventFiles(tmp_path)
    monkeypatch.undo()
    EventFiles(tmp_path).close()


def test_a_picture_has_its_size(tmp_path: Path) -> None:
    import numpy as np

    from scaffe.tools.filters import png

    picture = png(np.zeros((2, 1, 5, 5), np.float32))
    written(tmp_path, numbers(0, pictures={"filters": lambda: picture}))
    (image,) = [v.image for e in all_events(tmp_path) for v in e.summary.value if v.tag == "filters"]
    assert image.encoded_image_string == picture
    assert (image.width % 13, image.height % 7) == (0, 0) and image.width // 13 == image.height // 7
