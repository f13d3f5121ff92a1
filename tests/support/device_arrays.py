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
