"""BufferPool: which free buffer a memory gets."""

from scaffe.engines.onednn.buffer_pool import BufferPool


def test_the_last_buffer_comes_back_while_it_is_free_else_the_least_that_fits() -> None:
    pool = BufferPool()
    small, large = pool.take(10), pool.take(30)
    for buffer in (large, small):
        pool.put_back(buffer)
    assert pool.take(10, large) is large
    assert pool.take(10, large) is small  # the last one is taken
    assert not pool.free
    assert pool.take(10, large).size == 10  # and so are all
