"""Arguments: checks of what a collective is called with, on this rank alone.

They raise CollectiveError whatever Python type they get. `attempt` keeps the error, for `agreement.share`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from collectives.buffers import as_array
from collectives.codecs import check_numbers
from collectives.errors import ArgumentError, CollectiveError
from collectives.execution.maker import Call
from collectives.execution.node import NodeComm
from collectives.execution.operations import is_half, operation
from collectives.group import Group
from collectives.schedules.algorithms import check_algorithm, with_chain_size
from collectives.supernodes import as_text
from collectives.tuning.table import Table
from collectives.verbs import (
    ALLTOALL,
    BARRIER,
    BCAST,
    GATHER,
    SCATTER,
    SCHEDULED,
    VERBS,
    Verb,
    bounds_of,
    counts_of,
    even_bounds,
)

if TYPE_CHECKING:
    from collectives.execution.device.device import Device

T = TypeVar("T")
NO_DATA = np.empty(0, np.uint8)  # of a barrier
LONGEST = 60  # characters of a value in an error
PROGRESS_BY = "caller", "thread"
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
    if not is_whole(value):
        raise ArgumentError(f"{name} must be a whole number, got {shown(value)}")
    if index(value) < least:
        raise ArgumentError(f"{name} is {index(value)}; it must be at least {least}")
    return index(value)


def is_whole(value: Any) -> bool:
    """Return whether this is an integer of any type."""
    return isinstance(value, INTEGERS) or (hasattr(type(value), "__index__") and not isinstance(value, np.ndarray))


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


def check_parts(size: int, table: Any, group: Any, node: Any, supernodes: Any, progress: Any) -> dict[str, str]:
    """Return what all ranks must give alike. Raise ArgumentError for what a communicator can't be made of."""
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
    if progress not in PROGRESS_BY:
        raise ArgumentError(f"progress must be {' or '.join(PROGRESS_BY)}, got {shown(progress)}")
    return {"the group": str(group), "the supernodes": as_text(supernodes)}


def check_question(what: Any, nbytes: Any, algorithm: Any, numbers: Any) -> None:
    """Raise CollectiveError for what `explain` can't be asked."""
    check_verb(what)
    if what not in SCHEDULED:
        raise ArgumentError(f"{what} is the MPI library's own; others to ask about: {', '.join(SCHEDULED)}")
    whole("nbytes", nbytes)
    check_name(algorithm)
    check_algorithm(what, algorithm)
    check_numbers(numbers, np.dtype(np.float32))


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
        counts: Any = None,
        numbers: Any = "",
    ) -> Checked:
        """Return a call's arguments, checked. Raise ArgumentError, or what an object among them raises."""
        check_verb(what)
        verb = VERBS[what]
        root = self.root(root) if verb.has_root else 0
        send, recv = self.given(verb, send, recv, root)
        bounds = self.bounds(verb, send, recv, root, counts)
        self.arrays(verb, send, recv, root, bounds)
        op = operation(op, send.dtype).name if verb.joins else ""
        check_name(algorithm)
        if chain_size is not None:
            algorithm = with_chain_size(algorithm, whole("chain_size", chain_size, 1))
        chunk_bytes, number = whole("chunk_bytes", chunk_bytes), whole("number", number)
        scale = 1
        if not verb.joins and not is_number(send.dtype):  # MPI has no name for it: its bytes travel
            scale = send.itemsize
            is_one, send = recv is send, as_bytes(send)
            recv = send if is_one else None if recv is None else as_bytes(recv)
        counts = tuple(scale * count for count in counts_of(bounds)) if counts is not None or scale > 1 else ()
        content = scale * bounds[-1], type_name(send.dtype)
        flat = plain(send)
        call = Call(
            what, op, root, *content, str(algorithm), chunk_bytes, bool(staged), memory_of(send),
            counts if verb.has_blocks else (), check_numbers(numbers, send.dtype),
        )  # fmt: skip
        return Checked(call, number, flat, flat if recv is send else plain(recv), bool(check))

    def root(self, root: Any) -> int:
        """Return the root's rank."""
        if is_whole(root) and not 0 <= index(root) < self.size:
            raise ArgumentError(f"root {root} is not one of {self.size} ranks")
        return whole("root", root)

    def given(self, verb: Verb, send: Any, recv: Any, root: int) -> tuple[Any, Any]:
        """Return the arrays of the contribution and of the result, None for no result.

        They are one object where the result replaces the contribution, or lies beside it.
        """
        if is_in_place(send):
            send, recv = recv, None
        elif is_in_place(recv):
            recv = None
        if verb is BARRIER:
            return NO_DATA, NO_DATA
        if verb is BCAST and recv is not None:
            raise ArgumentError("bcast has one array, and takes no recv")
        if verb is SCATTER and self.rank != root:
            send = recv = send if recv is None else recv
        if (verb.joins or verb is GATHER) and verb.has_root and self.rank != root:
            recv = None
        elif verb is not BCAST and recv is None:
            recv = send
        is_one = recv is send
        send = as_array("send", send)
        recv = send if is_one else None if recv is None else as_array("recv", recv)
        is_one = recv is None or verb.has_blocks or verb is ALLTOALL or not is_alike(send, recv)
        return send, recv if is_one else send

    def bounds(self, verb: Verb, send: Any, recv: Any, root: int, counts: Any) -> Sequence[int]:
        """Return where the ranks' blocks begin, and how long the vector is."""
        if counts is not None:
            return bounds_of(self.counts(verb, counts))
        if not verb.has_root and verb.has_blocks:
            return even_bounds(send.size if verb.joins else recv.size, self.size)
        if not verb.has_blocks:
            return even_bounds(send.size, self.size)
        whole_vector = self.rank == root
        elements = (recv if verb is GATHER and whole_vector else send).size * (1 if whole_vector else self.size)
        if elements % self.size:
            raise ArgumentError(f"{verb.name}: {elements} elements are no multiple of {self.size} ranks; give counts")
        return even_bounds(elements, self.size)

    def counts(self, verb: Verb, counts: Any) -> list[int]:
        """Return the lengths of the ranks' blocks."""
        if not verb.has_blocks:
            raise ArgumentError(f"{verb.name} has no blocks, and takes no counts")
        if not isinstance(counts, Sequence | np.ndarray) or isinstance(counts, str | bytes):
            raise ArgumentError(f"counts must be a list of {self.size} numbers, got {shown(counts)}")
        if len(counts) != self.size:
            raise ArgumentError(f"counts has {len(counts)} numbers, for {self.size} ranks")
        return [whole(f"counts[{rank}]", count) for rank, count in enumerate(counts)]

    def arrays(self, verb: Verb, send: Any, recv: Any, root: int, bounds: Sequence[int]) -> None:
        """Raise ArgumentError for arrays that a call can't use, or of lengths that it can't have."""
        brings, gets = verb.contribution(self.rank, root, bounds), verb.result(self.rank, root, bounds)
        if recv is send or recv is None:
            self.array("send", send, written=recv is None and not verb.joins and gets != brings)
            if recv is send:
                self.array("recv", recv, written=True)
            expected = bounds[-1] if recv is send or verb.joins or not verb.has_blocks else length(brings)
            if verb is SCATTER and self.rank != root:
                expected = length(gets)
            check_length("send", send, expected)
        else:
            self.array("send", send, written=False)
            self.array("recv", recv, written=True)
            check_alike(send, recv)
            check_length("send", send, length(brings))
            check_length("recv", recv, length(gets))
            check_apart([("send", send, False), ("recv", recv, True)])
        if verb is ALLTOALL and send.size % self.size:
            raise ArgumentError(f"alltoall: {send.size} elements are no multiple of {self.size} ranks")

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


def length(part: tuple[int, int]) -> int:
    """Return the elements of a part of the vector."""
    return part[1] - part[0]


def is_in_place(given: Any) -> bool:
    """Return whether this is MPI.IN_PLACE."""
    from mpi4py import MPI

    return given is MPI.IN_PLACE


def is_number(dtype: np.dtype) -> bool:
    """Return whether MPI has a name for a type, or for another one of the same bits."""
    return (dtype.kind in "iufcb" and dtype.isnative) or is_half(dtype)


def as_bytes(array: Any) -> Any:
    """Return an array's bytes."""
    return array.reshape(-1).view(np.uint8)


def is_alike(one: Any, other: Any) -> bool:
    """Return whether two arrays are the same elements."""
    return is_same(one, other) and (one.size, one.dtype) == (other.size, other.dtype)


def check_length(name: str, array: Any, expected: int) -> None:
    """Raise ArgumentError for an array of another length."""
    if array.size != expected:
        raise ArgumentError(f"{name} has {array.size} elements; expected {expected}")


def check_alike(send: Any, recv: Any) -> None:
    """Raise ArgumentError for a result in another kind of memory, or of another type, than the contribution."""
    if on_device(recv) != on_device(send):
        raise ArgumentError(f"recv is in {memory_of(recv)} memory, send in {memory_of(send)} memory")
    if recv.dtype != send.dtype:
        raise ArgumentError(f"recv has {recv.size} of {recv.dtype}, send {send.size} of {send.dtype}")


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
