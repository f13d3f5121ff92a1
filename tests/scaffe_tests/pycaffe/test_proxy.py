"""A process takes its place in an MPI job from the proxy of its rank: of its own user, and for itself alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from threading import Thread, current_thread, main_thread

import pytest

from scaffe.errors import LaunchError
from scaffe.pycaffe import proxy
from scaffe.pycaffe.processes import JobPlace

FORKING = """
import os
from threading import Thread
from scaffe.pycaffe import processes, proxy

Thread(target=proxy.main, args=("UID",), daemon=True).start()
job = processes.JobPlace("UID", 1, 2)
processes._joined = processes.Member(job)
child = os.fork()
if not child:
    print(processes._joined, job.proxy.fileno(), end="", flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.fixture
def uid(monkeypatch):
    """The name of a group whose rank 1 has its proxy in this process."""
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setattr(proxy, "PATIENCE", 20.0)
    return os.urandom(8).hex()


@pytest.fixture
def listener(uid):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        opened.bind(proxy.address(uid, 1))
        opened.listen(1)
        yield opened


def test_a_connection_of_another_user_is_ignored(uid, monkeypatch):
    real, strangers, answers = proxy.user, [os.getuid() + 1], []

    def user(connection):
        return strangers.pop() if strangers and current_thread() is main_thread() else real(connection)

    def connect():
        with proxy.connect(uid, 1) as stranger:
            answers.append(stranger.recv(1))
        answers.append(proxy.main(uid))

    monkeypatch.setattr(proxy, "user", user)
    thread = Thread(target=connect, daemon=True)
    thread.start()
    JobPlace(uid, 1, 2).end()
    thread.join()
    assert answers == [b"", 0]


def test_another_user_who_listens_is_handed_nothing(uid, listener, monkeypatch):
    monkeypatch.setattr(proxy, "PATIENCE", 0.0)
    monkeypatch.setattr(proxy, "user", lambda connection: os.getuid() + 1)
    with pytest.raises(PermissionError, match="another user listens"):
        proxy.main(uid)
    with listener.accept()[0] as connection:
        assert connection.recv(1) == b""


def test_two_processes_of_one_rank_are_one_clear_line(uid, listener):
    with pytest.raises(LaunchError, match="two processes have solver rank 1: give each its own by set_solver_rank"):
        JobPlace(uid, 1, 2)


def test_a_process_that_a_rank_forks_is_none(uid):
    """It holds no connection to the proxy, which is to end with the rank, and cannot make solvers by its MPI."""
    program = FORKING.replace("UID", uid)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900)
    assert (ran.stdout, ran.returncode) == ("None -1", 0), ran.stderr
