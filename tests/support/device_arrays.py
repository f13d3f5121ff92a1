"""Collectives on device arrays beside numpy, whichever the device."""

import numpy as np


def rows(size, length, dtype):
    """Return all ranks' contributions: small whole numbers, whose sums are exact in every type."""
    drawn = [np.random.default_rng([rank, length]).integers(-9, 9, length) for rank in range(size)]
    return np.stack(drawn).astype(dtype)


def compare(comm, what, send, recv, everyone, op, root, **how):
    """Run a collective, in place too, and compare; `everyone` are all ranks' rows, this one's in `send`, `recv` 0."""
    if what == "bcast":
        comm.bcast(send, root, **how)
        np.testing.assert_array_equal(send.get(), everyone[root])
        return
    wide = everyone.astype(np.float64)
    want = {"sum": wide.sum, "mean": wide.mean, "max": wide.max, "min": wide.min}[op](0).astype(everyone.dtype)
    where = {} if what == "allreduce" else {"root": root}
    getattr(comm, what)(send, recv, op, **where, **how)
    has_result = what == "allreduce" or comm.rank == root
    np.testing.assert_array_equal(send.get(), everyone[comm.rank])
    np.testing.assert_array_equal(recv.get(), want if has_result else 0)
    getattr(comm, what)(send, op=op, **where, **how)  # in place
    np.testing.assert_array_equal(send.get(), want if has_result else everyone[comm.rank])


def compare_blocks(comm, device, what, everyone, op, counts, **how):
    """Run a collective of blocks, whose lengths are `counts`, over whole vectors and blocks, and compare."""
    total, start = sum(counts), sum(counts[: comm.rank])
    own, dtype = slice(start, start + counts[comm.rank]), everyone.dtype
    whole, block = device.empty((total,), dtype), device.empty((counts[comm.rank],), dtype)
    if what == "reduce_scatter":
        wide = everyone.astype(np.float64)
        want = {"sum": wide.sum, "mean": wide.mean, "max": wide.max, "min": wide.min}[op](0).astype(dtype)[own]
        whole.set(everyone[comm.rank])
        comm.reduce_scatter(whole, block, op, counts=counts, **how)
        np.testing.assert_array_equal(block.get(), want)
        np.testing.assert_array_equal(whole.get(), everyone[comm.rank])
        comm.reduce_scatter(whole, op=op, counts=counts, **how)  # in place
        np.testing.assert_array_equal(whole.get()[own], want)
        return
    blocks = [row[sum(counts[:k]) :][: counts[k]] for k, row in enumerate(everyone)]
    block.set(blocks[comm.rank])
    comm.allgather(block, whole, counts=counts, **how)
    np.testing.assert_array_equal(whole.get(), np.concatenate(blocks))
    np.testing.assert_array_equal(block.get(), blocks[comm.rank])
    whole.set(everyone[comm.rank])
    comm.allgather(whole, counts=counts, **how)  # in place
    np.testing.assert_array_equal(whole.get(), np.concatenate(blocks))


def uneven(length, size):
    """Return the lengths of blocks of a vector, of which one has no elements."""
    counts = [0, *(length // size for _ in range(size - 1))]
    return [*counts[:-1], length - sum(counts[:-1])] if size > 1 else [length]
