"""MoveVerbs: the collectives of a process group that move what the ranks bring as it is, as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from collectives.arguments import attempt
from collectives.torch.blocks import (
    MISTAKE,
    blocks,
    check_lengths,
    check_number,
    check_parts,
    placed,
    share_mistake,
    split_blocks,
    uneven,
)
from collectives.torch.group_calls import GroupCalls, kinds
from collectives.torch.tensors import as_bytes, check_same, joined, landing, nbytes, on_host, one_of, overlap, spread
from collectives.torch.work import CollectiveWork


class MoveVerbs(GroupCalls):
    """Broadcast, gather, scatter and all to all."""

    def broadcast(self, tensors: Any, opts: Any = None) -> CollectiveWork:
        """Copy the root's tensors into the other ranks'."""
        tensors, root = one_of(tensors), getattr(opts, "rootRank", 0)

        def job(work: CollectiveWork) -> None:
            for tensor in tensors:
                with landing(tensor) as room:
                    self._wait(work, self.comm.ibcast(as_bytes(room), root=root, check=self._check))

        return self._start("broadcast", opts, job, tensors, (kinds(tensors), root))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Copy all ranks' tensors into each rank's list of outputs; their lengths may differ."""
        outputs = outputs if isinstance(outputs[0], list | tuple) else [outputs]
        return self._gather_all(outputs, one_of(inputs), outputs, opts)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Do `allgather` of several tensors; each rank has a list of outputs, one for each of its inputs."""
        return self._gather_all([list(parts) for parts in zip(*outputs, strict=True)], inputs, outputs, opts)

    def _gather_all(self, outputs: Any, inputs: Any, results: Any, opts: Any) -> CollectiveWork:
        """Copy all ranks' tensors into lists with a tensor for each rank, a list for each input."""
        counts = [[nbytes(part) for part in parts] for parts in outputs]

        def job(work: CollectiveWork) -> None:
            for parts, given, each in zip(outputs, inputs, counts, strict=True):
                check_number("all_gather", "output tensors", parts, self.size())
                check_same("all_gather", "the input", given, parts[self.rank()])
                room = torch.empty(sum(each), dtype=torch.uint8)
                mine = as_bytes(on_host(given))
                self._wait(work, self.comm.iallgather(mine, room.numpy(), counts=uneven(each), check=self._check))
                spread(room, parts)

        return self._start("all_gather", opts, job, results, tuple(map(tuple, counts)))

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> CollectiveWork:
        """Copy all ranks' tensors, of one length, side by side into each rank's output."""
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Do `all_gather_single` of several tensors."""

        def job(work: CollectiveWork) -> None:
            for output, given in zip(outputs, inputs, strict=True):
                check_parts("all_gather_into_tensor", "the output", output, given, self.size())
                with landing(output) as room:
                    own = on_host(given)
                    own = own.clone() if overlap(own, room) else own
                    self._wait(work, self.comm.iallgather(as_bytes(own), as_bytes(room), check=self._check))

        return self._start("all_gather_into_tensor", opts, job, outputs, kinds(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Copy all ranks' tensors into the root's list of outputs; their lengths may differ."""
        given, root = one_of(inputs)[0], opts.rootRank
        parts = (outputs[0] if outputs and isinstance(outputs[0], list | tuple) else outputs) or []

        def job(work: CollectiveWork) -> None:
            is_root, mine, theirs = self.rank() == root, as_bytes(on_host(given)), np.zeros(self.size(), np.int64)
            self._wait(work, self.comm.comm.Igather(np.array([mine.size]), theirs if is_root else None, root))
            room = torch.empty(int(theirs.sum()), dtype=torch.uint8)
            there = [room.numpy(), placed(theirs.tolist()), MPI.BYTE] if is_root else None
            self._wait(work, self.comm.comm.Igatherv([mine, MPI.BYTE], there, root))
            if is_root:  # which has received all the same, so that its mistake keeps no other waiting
                check_number("gather", "output tensors", parts, self.size())
                check_same("gather", "the input", given, parts[root])
                check_lengths("gather", dict(enumerate(theirs.tolist())), blocks(parts)[0])
                spread(room, parts)

        return self._start("gather", opts, job, parts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Copy the root's list of tensors, one to each rank; their lengths may differ."""
        output, root = one_of(outputs)[0], opts.rootRank
        parts = (inputs[0] if inputs and isinstance(inputs[0], list | tuple) else inputs) or []

        def cut() -> list[Any]:
            check_number("scatter", "input tensors", parts, self.size())
            check_same("scatter", "the output", output, parts[root])
            return [as_bytes(joined(parts)), blocks(parts), MPI.BYTE]

        def job(work: CollectiveWork) -> None:
            mine, error = attempt(cut) if self.rank() == root else (None, None)
            there, length = self._said(mine[1][0] if mine else None), np.zeros(1, np.int64)
            self._wait(work, self.comm.comm.Iscatter(there if self.rank() == root else None, length, root))
            share_mistake("scatter", {root: int(length[0])}, error)
            with landing(output) as room:
                landed = as_bytes(room) if length[0] == nbytes(room) else np.empty(length[0], np.uint8)
                self._wait(work, self.comm.comm.Iscatterv(mine, [landed, MPI.BYTE], root))
                check_lengths("scatter", {root: landed.size}, [nbytes(room)])

        return self._start("scatter", opts, job, [output])

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Give tensor r of each rank's list to rank r, whose outputs have them in the ranks' order."""

        def cut() -> tuple[Any, list[int], list[int]]:
            check_number("all_to_all", "output tensors", outputs, self.size())
            check_number("all_to_all", "input tensors", inputs, self.size())
            return joined(inputs), blocks(inputs)[0], blocks(outputs)[0]

        def job(work: CollectiveWork) -> None:
            room = torch.empty(sum(map(nbytes, outputs)), dtype=torch.uint8)
            self._exchange(work, "all_to_all", cut, room)
            spread(room, outputs)

        return self._start("all_to_all", opts, job, outputs)

    def all_to_all_single(
        self, output: torch.Tensor, given: torch.Tensor, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> CollectiveWork:
        """Give part r of each rank's tensor to rank r. Splits are lengths along dimension 0, [] for equal ones."""

        def job(work: CollectiveWork) -> None:
            with landing(output) as room:

                def cut() -> tuple[Any, list[int], list[int]]:
                    check_same("all_to_all_single", "the output", output, given, sizes=False)
                    mine, size = on_host(given), self.size()
                    mine = mine.clone() if overlap(mine, room) else mine
                    sends = split_blocks("input", given, input_splits, size)[0]
                    return mine, sends, split_blocks("output", output, output_splits, size)[0]

                self._exchange(work, "all_to_all_single", cut, room)

        return self._start("all_to_all_single", opts, job, [output])

    alltoall_base = all_to_all_single

    def _exchange(self, work: CollectiveWork, what: str, cut: Any, room: torch.Tensor) -> None:
        """Give each rank a block of what `cut` returns, with the blocks' bytes and those that `room` has for theirs."""
        found, error = attempt(cut)
        said = np.zeros(self.size(), np.int64)
        self._wait(work, self.comm.comm.Ialltoall(self._said(found and found[1]), said))
        theirs = said.tolist()
        share_mistake(what, dict(enumerate(theirs)), error)
        assert found is not None
        mine, sends, gets = found
        landed = as_bytes(room) if theirs == gets else np.empty(sum(theirs), np.uint8)
        there, here = [as_bytes(mine), placed(sends), MPI.BYTE], [landed, placed(theirs), MPI.BYTE]
        self._wait(work, self.comm.comm.Ialltoallv(there, here))
        check_lengths(what, dict(enumerate(theirs)), gets)

    def _said(self, lengths: list[int] | None) -> Any:
        """Return the array that tells each rank the bytes that it gets; None is for a mistake."""
        return np.array([MISTAKE] * self.size() if lengths is None else lengths, np.int64)
