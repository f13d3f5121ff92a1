"""What `Communicator.explain` is asked, as a call of bytes, and what it says."""

from __future__ import annotations

from collectives.execution.device.choice import NCCL
from collectives.execution.maker import Call
from collectives.group import Group
from collectives.schedules.algorithms import LEADERS, Choice
from collectives.supernodes import describe_crossing
from collectives.tuning.table import HOST, Shape


def asked(what: str, nbytes: int, algorithm: str, device: str, numbers: str) -> Call:
    """Return the call that a question is about."""
    return Call(
        what, "", 0, nbytes, "uint8", algorithm, 0, memory=HOST if device == "cpu" else "device", numbers=numbers
    )


def said(call: Call, choice: Choice, shape: Shape, group: Group, how: str) -> str:
    """Return the sentence: what is done, why, how many bytes cross supernodes, and `how` device arrays travel."""
    name = choice.algorithm
    if name.startswith(LEADERS):
        name, group = name.removeprefix(LEADERS), group.of_nodes()
    scheduled = len(set(group.supernodes)) > 1 and name not in ("mpi", "slices", NCCL)
    crossing = describe_crossing(call.what, name, call.elements, group) if scheduled else ""
    why = choice.why or ("as asked" if call.algorithm != "auto" else f"for {call.numbers}")
    where = " in device memory" * (call.memory != HOST) + f" as {call.numbers}" * bool(call.numbers)
    told = f"{call.what} of {call.elements} bytes{where}, {shape}: {choice}, {why}"
    return "; ".join(filter(None, (told, crossing, how)))
