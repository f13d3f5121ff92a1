"""A message that ends a job: written, and waited for until it has been read."""

import os
import threading

from collectives import abort


def test_write_returns_once_the_message_is_read(monkeypatch):
    monkeypatch.setattr(abort, "PATIENCE", 900)
    read, write = os.pipe()
    with open(read) as launcher, open(write, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        rank = threading.Thread(target=abort.write, args=("rank 1: gone\n",))
        rank.start()
        while not abort.unread(stderr):
            pass
        assert rank.is_alive()
        assert launcher.readline() == "rank 1: gone\n"
        rank.join()
        assert abort.unread(stderr) == 0


def test_a_file_is_not_waited_for(monkeypatch, tmp_path):
    with open(tmp_path / "log", "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        monkeypatch.setattr("time.sleep", lambda _: 1 / 0)
        abort.write("rank 1: gone\n")
    assert (tmp_path / "log").read_text() == "rank 1: gone\n"
