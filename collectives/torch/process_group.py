"""MpiProcessGroup: torch.distributed's process group over a Communicator.

PyTorch calls the methods, from Python and from C++, by c10d's names. Each returns a Work at once; its `wait` raises
DistBackendError for what goes wrong. Tensors of any layout and device are taken: contiguous ones in host memory as they
are, all others as copies, which are copied back.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from collectives.torch.graphs import outside_graphs
from collectives.torch.group_calls import MESSAGE
from collectives.torch.messages import MessageWork, MonitoredBarrier, check_tag, receive, send
from collectives.torch.move_verbs import MoveVerbs
from collectives.torch.sum_verbs import SumVerbs
from collectives.torch.tensors import one_of
from collectives.torch.work import CollectiveWork


@outside_graphs
class MpiProcessGroup(SumVerbs, MoveVerbs):
    """A process group of c10d over the ranks of an MPI communicator; see GroupCalls."""

    def barrier(self, opts: Any = None) -> CollectiveWork:
        """Return once all ranks have come."""
        return self._start("barrier", opts, lambda work: self._wait(work, self.comm.ibarrier()), [], "barrier")

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return once all ranks have come; raise RuntimeError with the ranks that do not."""
        self.check_usable("monitored_barrier")
        self._barriers += 1
        seconds = self._seconds(None) if timeout is None else timeout.total_seconds()
        MonitoredBarrier(self.messages, self._barriers, seconds).run(wait_all_ranks)

    def send(self, tensors: Any, rank: int, tag: int = 0) -> CollectiveWork:
        """Send a tensor to a rank."""
        return self._message(f"send to rank {rank}", send, one_of(tensors)[0], [], rank, tag)

    def recv(self, tensors: Any, rank: int, tag: int = 0) -> CollectiveWork:
        """Receive a tensor from a rank."""
        return self._message(f"recv from rank {rank}", receive, one_of(tensors)[0], one_of(tensors), rank, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> CollectiveWork:
        """Receive a tensor from any rank; the Work knows which."""
        return self._message("recv from any rank", receive, one_of(tensors)[0], one_of(tensors), -1, tag)

    def _message(self, what: str, begin: Any, tensor: Any, results: Any, rank: int, tag: int) -> CollectiveWork:
        """Begin to send or receive a tensor."""
        self.check_usable(what)
        work = MessageWork(self, what, MESSAGE, results, self._seconds(None))
        try:
            check_tag(self.messages, tag)
            begun: CollectiveWork = begin(self.messages, work, tensor, rank, tag)
        except Exception as error:
            raise self._as_backend_error(what, error) from error
        return begun

    def getBackendName(self) -> str:
        """Return the backend's name."""
        return "scaffe"

    def getGroupName(self) -> str:
        """Return what PyTorch calls the group."""
        return self._names[0]

    def setGroupName(self, name: str) -> None:
        """Take the group's name."""
        self._names[0] = name

    def getGroupDesc(self) -> str:
        """Return what PyTorch says of the group."""
        return self._names[1]

    def setGroupDesc(self, text: str) -> None:
        """Take what PyTorch says of the group."""
        self._names[1] = text

    def get_group_store(self) -> Any:
        """Return c10d's store of this group."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time of calls that give none."""
        self._timeout = timeout

    def _get_backend(self, device: Any) -> MpiProcessGroup:
        """Return the group, which is its own backend: PyTorch asks it from 2.14 on whether it joins messages."""
        return self

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: calls are counted from the beginning."""

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collectives this rank has called."""
        return self._entered
