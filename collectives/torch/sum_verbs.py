"""SumVerbs: the collectives of a process group that join what the ranks bring."""

from __future__ import annotations

from typing import Any

import torch

from collectives.errors import ArgumentError
from collectives.progress import PROGRESS
from collectives.torch.blocks import check_number, check_parts
from collectives.torch.group_calls import GroupCalls, kinds, op_key, reduce_op
from collectives.torch.reductions import reduction
from collectives.torch.tensors import check_same, copy_back, flat, joined, landing, on_host, one_of, overlap
from collectives.torch.work import CollectiveWork


class SumVerbs(GroupCalls):
    """Reductions."""

    def allreduce(self, tensors: Any, opts: Any = None) -> CollectiveWork:
        """Reduce each tensor, in place, on all ranks."""
        tensors = one_of(tensors)

        def job(work: CollectiveWork) -> None:
            for tensor in tensors:
                op = reduction(reduce_op(opts), tensor.dtype)
                if tensor.is_sparse:
                    self._sum_sparse(tensor, op.name)
                    continue
                with landing(tensor) as room:
                    op.before(room)
                    self._wait(work, self.comm.iallreduce(flat(room), op=op.name, check=self._check))
                    op.after(room, self.size())

        return self._start("all_reduce", opts, job, tensors, (kinds(tensors), op_key(opts)))

    allreduce_coalesced = allreduce

    def _sum_sparse(self, tensor: torch.Tensor, op: str) -> None:
        """Replace a sparse tensor by the sum of all ranks', whose places may differ."""
        if op != "sum":
            raise ArgumentError(f"all_reduce: sparse tensors have the sum alone, not {op}")
        every = self.comm.objects.allgather(tensor.detach().cpu().coalesce())
        tensor.copy_(sum(every[1:], every[0]).coalesce())

    def mean(self, tensor: torch.Tensor, numbers: str, number: int) -> CollectiveWork:
        """Replace a tensor by the mean of all ranks' tensors; it travels in these numbers of `collectives.codecs`.

        `number` keeps plans apart, with what rounding has lost.
        """

        def job(work: CollectiveWork) -> None:
            with landing(tensor) as room:
                array = flat(room)
                how = {"number": number, "numbers": numbers, "staged": True, "check": self._check}
                plan = self.comm.plan("allreduce", array, array, op="mean", **how)
                plan.start()
                self._wait(work, PlanRequest(plan))

        return self._start("all_reduce", None, job, [tensor])

    def reduce(self, tensors: Any, opts: Any = None) -> CollectiveWork:
        """Reduce a tensor into the root's."""
        tensor, root = one_of(tensors)[0], opts.rootRank

        def job(work: CollectiveWork) -> None:
            op = reduction(reduce_op(opts), tensor.dtype)
            room = on_host(tensor)
            room = room.clone() if op.factor is not None else room
            op.before(room)
            self._wait(work, self.comm.ireduce(flat(room), op=op.name, root=root, check=self._check))
            if self.rank() == root:
                op.after(room, self.size())
                copy_back(room, tensor)

        return self._start("reduce", opts, job, [tensor], (kinds([tensor]), op_key(opts), root))

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Reduce the ranks' lists of tensors; rank r gets the r-th, whose length may differ from the others'."""
        output, parts = one_of(outputs)[0], inputs[0] if isinstance(inputs[0], list | tuple) else inputs
        counts = [part.numel() for part in parts]

        def job(work: CollectiveWork) -> None:
            check_number("reduce_scatter", "input tensors", parts, self.size())
            check_same("reduce_scatter", "the output", output, parts[self.rank()])
            self._scatter_sums(work, joined(parts), output, opts, counts)

        return self._start("reduce_scatter", opts, job, [output], (*counts, output.dtype, op_key(opts)))

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> CollectiveWork:
        """Reduce the ranks' tensors; rank r gets the r-th of P equal parts."""
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Do `reduce_scatter_single` of several tensors."""

        def job(work: CollectiveWork) -> None:
            for output, given in zip(outputs, inputs, strict=True):
                check_parts("reduce_scatter_tensor", "the input", given, output, self.size())
                self._scatter_sums(work, on_host(given), output, opts)

        return self._start("reduce_scatter_tensor", opts, job, outputs, (kinds(inputs), op_key(opts)))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_sums(
        self, work: CollectiveWork, given: torch.Tensor, output: torch.Tensor, opts: Any, counts: Any = None
    ) -> None:
        """Reduce contiguous tensors; put this rank's part into `output`."""
        op = reduction(reduce_op(opts), given.dtype)
        given = given.clone() if op.factor is not None else given
        op.before(given)
        with landing(output) as room:
            result = room.clone() if overlap(room, given) else room
            self._wait(
                work, self.comm.ireduce_scatter(flat(given), flat(result), op=op.name, counts=counts, check=self._check)
            )
            op.after(result, self.size())
            copy_back(result, room)


class PlanRequest:
    """A plan that was started, as `_wait` takes a request."""

    def __init__(self, plan: Any):
        self.plan, self.advance = plan, plan.advance

    def wait(self, seconds: float) -> None:
        """Wait for its end. Raise WaitTimeout."""
        PROGRESS.wait_until(lambda: not self.plan.is_under_way, self.plan, seconds)
