"""The unfavourable network keeps MPI's guarantees, gives no more, and tells of what MPI forbids."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from collectives.errors import ScheduleError
from collectives.execution.execute import InFlight
from collectives.simulation.adversary import EagerDelivery, LazyDelivery, Network, RandomDelivery, SimulatedRequest

ORDERS = LazyDelivery(), EagerDelivery(), RandomDelivery(3)
Requests = Iterator[SimulatedRequest]


@pytest.mark.parametrize("order", ORDERS)
def test_messages_of_one_tag_arrive_in_order_and_others_pass_them(order: LazyDelivery) -> None:
    network, room = Network(2, order), np.zeros(3)

    def send() -> Requests:
        comm = network.comm(0)
        yield from [comm.Isend([np.full(1, float(k))], 1, tag) for k, tag in ((1, 0), (2, 0), (3, 1))]

    def receive() -> Requests:
        comm = network.comm(1)
        yield comm.Irecv([room[2:]], 0, 1)
        yield from [comm.Irecv([room[k : k + 1]], 0, 0) for k in range(2)]

    network.run([send(), receive()])
    assert room.tolist() == [1, 2, 3] and network.most == [2, 3]


@pytest.mark.parametrize(
    ("order", "synchronous", "buffered"),
    [(LazyDelivery(), False, False), (EagerDelivery(), True, False), (EagerDelivery(), False, True)],
)
def test_what_is_sent_may_be_written_once_the_rank_knows_of_its_end(
    order: LazyDelivery, synchronous: bool, buffered: bool
) -> None:
    network, sent = Network(2, order), np.zeros(1)
    comm = network.comm(0)
    ends = [(comm.Issend if synchronous else comm.Isend)([sent], 1, tag) for tag in (0, 1)]
    assert [end.complete for end in ends] == [buffered, buffered] and network.most == [0, 2]
    ends[0].learn()
    sent[0] = 7
    ends[0].learn()
    with pytest.raises(
        ScheduleError, match="rank 0 wrote to what it was sending, and waited for rank 1 to receive tag 1"
    ):
        ends[1].learn()


def test_a_test_may_report_a_completion_late() -> None:
    for order, reports in ((LazyDelivery(), False), (EagerDelivery(), True)):
        network = Network(2, order)
        end = network.comm(0).Isend([np.zeros(1)], 1, 0)
        end.complete = True
        assert end.Test() is reports


def test_what_mpi_forbids_is_told() -> None:
    def endless(rank: int) -> Requests:
        yield network.comm(rank).Irecv([np.zeros(1)], 1 - rank, 5)

    def left() -> Requests:
        network.comm(0).Irecv([np.zeros(1)], 1, 0)
        yield from ()

    def blocks() -> Requests:
        network.comm(0).Irecv([np.zeros(1)], 1, 0).Wait()
        yield from ()

    network = Network(2, LazyDelivery())
    said = "2 ranks wait forever: rank 0 for rank 1 to send tag 5; rank 1 for rank 0 to send tag 5"
    with pytest.raises(ScheduleError, match=said):
        network.run([endless(0), endless(1)])
    network = Network(2, LazyDelivery())
    with pytest.raises(ScheduleError, match=r"rank 0 ends with receives and sends under way: \[1, 0\]"):
        network.run([left()])
    network = Network(2, LazyDelivery())
    with pytest.raises(ScheduleError, match="rank 0 waits inside a call for rank 1 to send tag 0"):
        network.run([blocks()])


def test_limits_and_lengths_are_kept() -> None:
    comm = Network(2, LazyDelivery(), InFlight(receives=2, sends=1)).comm(0)
    for _ in range(2):
        comm.Irecv([np.zeros(1)], 1, 0)
    with pytest.raises(ScheduleError, match="rank 0 has 3 receives, 0 sends in InFlight"):
        comm.Irecv([np.zeros(1)], 1, 0)
    network = Network(2, LazyDelivery())
    network.comm(0).Isend([np.zeros(2)], 1, 0)
    with pytest.raises(ScheduleError, match=r"\(2,\) sent where \(1,\) are received"):
        network.comm(1).Irecv([np.zeros(1)], 0, 0)
