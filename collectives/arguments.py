"""Arguments: checks of what a collective is called with, on this rank alone.

They raise CollectiveError whatever Python type they get. `attempt` keeps the error, for `agreement.share`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from collectives.errors import ArgumentError, CollectiveError
from collectives.execution.maker import Call
from collectives.execution.node import NodeComm
from collectives.execution.operations import TYPES, operation
from collectives.group import Group
from collectives.schedules.algorithms import check_algorithm, with_chain_size
from collectives.schedules.registry import VERBS
from collectives.supernodes import as_text
from collectives.tuning.table import Table

if TYPE_CHECKING:
    from collectives.execution.device.device import Device

T = TypeVar("T")
LONGEST = 60  # characters of a value in an error
INTEGERS = (int, np.integer)


def attempt(work: Callable[[], T]) -> tuple[T | None, CollectiveError | None]:
    """Return what `work` returns and None, or None and its error: an object of any type may raise anything."""
    try:
        return work(), None
    except CollectiveError as error:
        return None, error
    except Exception as error:
        return None, ArgumentError(f"{type(error).__name__}: {error}".splitlines()[0])


def shown(value: object) -> str:
    """Return a value as errors show it: texts, numbers and None themselves, of all else the type."""
    if isinstance(value, str):
        return f"'{value[:LONGEST]}'"
    return str(value)[:LONGEST] if value is None or isinstance(value, int | float) else type(value).__name__


def check_verb(what: Any) -> None:
    """Raise ArgumentError for an unknown collective."""
    if not isinstance(what, str) or what not in VERBS:
        raise ArgumentError(f"unknown collective {shown(what)}; known are {', '.join(VERBS)}")


def check_name(algorithm: Any) -> None:
    """Raise ArgumentError for what is no text."""
    if not isinstance(algorithm, str):
        raise ArgumentError(f"algorithm must be a name, got {shown(algorithm)}")


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return a whole number. Raise ArgumentError for anything else, and for one below `least`."""
    if not isinstance(value, INTEGERS):
        raise ArgumentError(f"{name} must be a whole number, got {shown(value)}")
    if value < least:
        raise ArgumentError(f"{name} is {value}; it must be at least {least}")
    return int(value)


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return the lengths of an array's dimensions, of one or several numbers."""
    lengths = (shape,) if isinstance(shape, INTEGERS) else tuple(shape)
    return tuple(whole("shape", length) for length in lengths)


def check_comm(comm: Any) -> None:
    """Raise ArgumentError for what is no communicator of ranks of one group."""
    from mpi4py import MPI

    if not isinstance(comm, MPI.Intracomm) or not comm:
        kind = "MPI.COMM_NULL" if isinstance(comm, MPI.Comm) and not comm else type(comm).__name__
        raise ArgumentError(f"comm must be an MPI intracommunicator, such as MPI.COMM_WORLD, got {kind}")


def check_parts(size: int, table: Any, group: Any, node: Any, supernodes: Any) -> None:
    """Raise ArgumentError for what a communicator of `size` ranks can't be made of."""
    for name, one, kind in (("table", table, Table), ("group", group, Group), ("node", node, NodeComm)):
        if one is not None and not isinstance(one, kind):
            raise ArgumentError(f"{name} must be a {kind.__name__}, got {shown(one)}")
    if group is not None and not len(group.nodes) == len(group.supernodes) == size:
        raise ArgumentError(
            f"group has the nodes of {len(group.nodes)} ranks and the supernodes of {len(group.supernodes)}, "
            f"the communicator has {size}"
        )
    if group is not None and Group.of(group.nodes, group.supernodes) != group:
        raise ArgumentError("group must number nodes and supernodes in the order of their ranks; make it by Group.of")
    as_text(supernodes)


def check_question(what: Any, nbytes: Any, algorithm: Any) -> None:
    """Raise CollectiveError for what `explain` can't be asked."""
    check_verb(what)
    whole("nbytes", nbytes)
    check_name(algorithm)
    check_algorithm(what, algorithm)


class Checked(NamedTuple):
    """A valid call: the key of its plan, the arrays to bind, and whether the ranks check that they agree."""

    call: Call
    number: int
    send: Any
    recv: Any
    check: bool


class ArgumentCheck(NamedTuple):
    """Who makes a call: the rank, of how many, and its device."""

    rank: int
    size: int
    device: Callable[[], Device]

    def checked(
        self,
        what: Any,
        send: Any,
        recv: Any,
        op: Any,
        root: Any,
        algorithm: Any,
        chain_size: Any,
        chunk_bytes: Any,
        check: Any,
        number: Any,
        staged: Any,
    ) -> Checked:
        """Return a call's arguments, checked. Raise ArgumentError, or what an object among them raises."""
        check_verb(what)
        root = 0 if what == "allreduce" else self.root(root)
        send, recv = self.arrays(what, send, recv, root)
        op = "" if what == "bcast" else operation(op, send.dtype).name
        check_name(algorithm)
        if chain_size is not None:
            algorithm = with_chain_size(algorithm, whole("chain_size", chain_size, 1))
        chunk_bytes, number = whole("chunk_bytes", chunk_bytes), whole("number", number)
        content = send.size, type_name(send.dtype)
        call = Call(what, op, root, *content, str(algorithm), chunk_bytes, bool(staged), memory_of(send))
        return Checked(call, number, send, recv, bool(check))

    def root(self, root: Any) -> int:
        """Return the root's rank."""
        if isinstance(root, INTEGERS) and not 0 <= root < self.size:
            raise ArgumentError(f"root {root} is not one of {self.size} ranks")
        return whole("root", root)

    def arrays(self, what: str, send: Any, recv: Any, root: int) -> tuple[Any, Any]:
        """Return the array sent and that of the result, None where this rank has none.

        Broadcasts of types that MPI has no name for get the array's bytes.
        """
        if what == "bcast" and recv is not None:
            raise ArgumentError("bcast has one array, and takes no recv")
        if what == "reduce" and self.rank != root:
            recv = None
        elif what != "bcast" and recv is None:
            recv = send
        self.array("send", send, written=what == "bcast" and self.rank != root)
        if recv is not None:
            self.array("recv", recv, written=True)
            check_pair(send, recv)
        if what == "bcast" and send.dtype not in TYPES:
            send = send.reshape(-1).view(np.uint8)
        flat = plain(send)
        return flat, flat if recv is send else plain(recv)

    def array(self, name: str, array: Any, written: bool) -> None:
        """Raise ArgumentError for an object that can't be sent, or written into, where it lies."""
        if not on_device(array):
            check_host_array(name, array)
        elif not self.device().holds(array):
            raise ArgumentError(f"{name} must be a CuPy array on {self.device().name}, got {type(array).__name__}")
        if not array.flags.c_contiguous:
            raise ArgumentError(f"{name} must be contiguous, got shape {array.shape} with strides {array.strides}")
        if written and not on_device(array) and not array.flags.writeable:
            raise ArgumentError(f"{name} is read-only, but the result goes there")


@cache
def type_name(dtype: np.dtype) -> str:
    """Return a type's name, which takes NumPy microseconds."""
    return str(dtype)


def check_host_array(name: str, array: Any) -> None:
    """Raise ArgumentError for what is no NumPy array of plain values."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"{name} must be a numpy array, got {type(array).__name__}")
    if array.dtype.hasobject:
        raise ArgumentError(f"{name} has elements of {array.dtype}, Python objects, which can't be sent")


def check_pair(send: Any, recv: Any) -> None:
    """Raise ArgumentError for a result that has not the contribution's memory, type or length, or overlaps it."""
    if on_device(recv) != on_device(send):
        raise ArgumentError(f"recv is in {memory_of(recv)} memory, send in {memory_of(send)} memory")
    if (recv.dtype, recv.size) != (send.dtype, send.size):
        raise ArgumentError(f"recv has {recv.size} of {recv.dtype}, send {send.size} of {send.dtype}")
    if not is_same(send, recv):
        check_apart([("send", send, False), ("recv", recv, True)])


def check_apart(arrays: Iterable[tuple[str, Any, bool]]) -> None:
    """Raise ArgumentError where an array that is written shares memory with another.

    Each has a name, the array, which is contiguous, and whether it is written.
    """
    extents = sorted((start_of(array), array.nbytes, written, name) for name, array, written in arrays if array.nbytes)
    ends = [(0, ""), (0, "")]  # of all so far, and of those that are written: the furthest, and its array's name
    for start, nbytes, written, name in extents:
        end, other = ends[not written]
        if start < end:
            raise ArgumentError(f"{other} and {name} overlap in memory; a result needs memory of its own")
        for kind in range(1 + written):
            ends[kind] = max(ends[kind], (start + nbytes, name))


def is_same(one: Any, other: Any) -> bool:
    """Return whether two things are one object, or arrays that begin at one place."""
    return one is other or (is_array(one) and is_array(other) and start_of(one) == start_of(other))


def is_array(one: Any) -> bool:
    """Return whether this is an array in host or device memory."""
    return isinstance(one, np.ndarray) or on_device(one)


def start_of(array: Any) -> int:
    """Return the address of an array's first element."""
    interface = array.__cuda_array_interface__ if on_device(array) else array.__array_interface__
    return int(interface["data"][0])


def plain(array: Any) -> Any:
    """Return the elements of an array, flat, and without what a subclass of NumPy's array does with them."""
    if isinstance(array, np.ndarray) and type(array) is not np.ndarray:
        array = np.asarray(array)
    return None if array is None else array.reshape(-1)


def on_device(array: Any) -> bool:
    """Return whether `array` lies in device memory."""
    return not isinstance(array, np.ndarray) and hasattr(array, "__cuda_array_interface__")


def memory_of(array: Any) -> str:
    """Return "host" or "device"."""
    return "device" if on_device(array) else "host"
