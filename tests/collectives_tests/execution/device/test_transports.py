"""Messages of device arrays: when they begin, and through which slots they pass."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice

from collectives.errors import RankLostError
from collectives.execution.device.transports import SLOTS, DeferredRequest, DirectTransport, Queues, StagedTransport
from collectives.execution.operations import OPERATIONS

FLOAT = np.dtype("f4")


class Late:
    """An event that is complete when it is told so, and a request that is complete at once."""

    done = False

    def Test(self) -> bool:
        return self.done

    def Wait(self) -> None:
        self.done = True


def test_messages_begin_in_their_order_once_their_events_are_complete() -> None:
    queues: Queues = deque(), deque()
    begun, events = [], [Late(), Late()]

    def begin(k: int) -> Any:
        begun.append(k)
        return SimpleNamespace(Test=lambda: k == 1, Wait=lambda: None)

    first, second = (DeferredRequest(queues, event, lambda k=k: begin(k), sent=True) for k, event in enumerate(events))
    events[1].done = True
    assert not second.Test() and not begun
    events[0].done = True
    assert second.Test() and begun == [0, 1] and not first.Test()


def test_a_wait_begins_all_messages_first_and_a_loss_keeps_some_from_it() -> None:
    queues: Queues = deque(), deque()
    ready = Late()
    ready.done = True
    waited = []
    send = DeferredRequest(
        queues, ready, lambda: SimpleNamespace(Test=lambda: True, Wait=lambda: waited.append(1)), True
    )
    send.Wait()
    assert waited == [1]
    transport = DirectTransport(FakeDevice())  # type: ignore[arg-type]
    late = DeferredRequest(transport._late, Late(), lambda: SimpleNamespace(), sent=False)
    transport.break_off()
    with pytest.raises(RankLostError, match="a rank was lost before the message was begun"):
        late.Wait()


def test_chunks_pass_through_a_fixed_number_of_slots_in_each_direction() -> None:
    device = FakeDevice()
    staged = StagedTransport(device)  # type: ignore[arg-type]
    staged.prepare(64)
    array = device.zeros((4,), FLOAT)
    sent, got = ([staged.message(array, way) for _ in range(SLOTS + 1)] for way in (True, False))
    places = [one.pinned.ctypes.data for one in (*sent, *got)]
    assert len(set(places)) == 2 * SLOTS and places[0] == places[SLOTS] and {one.pinned.nbytes for one in sent} == {16}
    assert sent[0].copied is sent[SLOTS].copied is not got[0].copied
    pinned = staged._pinned
    staged.prepare(32)
    assert staged._pinned is pinned and staged.message(array, True).pinned.ctypes.data == places[0]


@pytest.mark.parametrize("kind", [DirectTransport, StagedTransport])
@pytest.mark.parametrize("seed", range(4))
def test_a_message_has_what_was_joined_before_it_and_the_caller_sees_the_end(kind: type, seed: int) -> None:
    """The work of the caller's stream, an addition, then a send; nothing waits but for what it needs."""
    device, sent = FakeDevice(seed=seed), []
    transport = kind(device)
    transport.prepare(16)
    own, came, total = (device.zeros((4,), FLOAT) for _ in range(3))

    def send(message: Any, peer: int, tag: int) -> Any:
        values = message[0].values if kind is DirectTransport else message.view(FLOAT)
        sent.append((values.tolist(), peer, tag))
        return SimpleNamespace(Test=lambda: True, Wait=lambda: None)

    comm: Any = SimpleNamespace(Isend=send, Issend=lambda *given: pytest.fail("not synchronous"))
    own.set(np.full(4, 3))
    came.set(np.full(4, 4))
    transport.mark()
    if (ready := transport.begin()) is not None:
        ready.Wait()
    transport.join(OPERATIONS["sum"], total, own, came)
    transport.send(comm, transport.message(total, True), 1, 5, synchronous=False).Wait()
    assert sent == [([7] * 4, 1, 5)]
    transport.divide(total, 7)
    transport.end()
    transport.follow()
    assert total.get().tolist() == [1] * 4
    transport.free()
