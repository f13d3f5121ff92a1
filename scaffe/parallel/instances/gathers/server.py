"""Server: gradients are added as they come (ParaX's gradient server, section 4.2)."""

from __future__ import annotations

from scaffe.parallel.instances.gathers.gather import RESULT, Addition, Gather, register


class ServerGather(Gather):
    """Each bucket is added to by one thread at a time, which adds all gradients that came meanwhile.

    A bucket's sum so far lies in the buffer of the lowest-numbered instance that is in it, at first of the instance
    that came first. So it ends in instance 0's, and no other memory is used.

    A thread that finds its bucket in use leaves its gradients to the thread that uses it, and goes on. So gradients
    meet under mutual exclusion, but no thread waits. Sums depend on the order in which gradients come. With
    `deterministic` the order of adding is that of the instances' numbers; gradients that come before their turn wait.

    Passes over the buffer (the paper's figure 17): n reads of gradients, m writes of the sum by m additions, and m - 1
    reads of it: n + 2 m - 1. There are at most n - 1 additions, so 3 n - 3 passes, and fewer where several gradients
    come meanwhile. The paper's algorithm 1 has 3 n, since each instance adds to a global G, and one more clears G.
    """

    name = "server"
    repeats = False

    def reset(self) -> None:
        """Expect the instances' gradients of each bucket."""
        self._come: list[list[int]] = [[] for _ in self.lengths]  # buffers to be added: gradients, and the sum so far
        self._used = [False] * len(self.lengths)
        self._turn = [0] * len(self.lengths)  # the instance whose turn is next, with `deterministic`

    def given(self, instance: int, bucket: int) -> list[Addition]:
        """Return the bucket's next addition, unless another thread adds to it."""
        self._come[bucket] += self._in_turn(bucket) if self.deterministic else [instance]
        return [] if self._used[bucket] else self._next(bucket)

    def added(self, addition: Addition) -> list[Addition]:
        """Return the bucket's next addition, of what has come meanwhile."""
        bucket = addition.bucket
        self._used[bucket] = False
        self._come[bucket].append(addition.target)
        self.complete[bucket] = self.all_given(bucket) and self._come[bucket] == [RESULT]
        return [] if self.complete[bucket] else self._next(bucket)

    def _next(self, bucket: int) -> list[Addition]:
        """Return an addition of all that has come; none if there is nothing to add to another."""
        if len(self._come[bucket]) < min(2, self.size):
            return []
        sources, self._come[bucket] = sorted(self._come[bucket]), []
        self._used[bucket] = True
        return [Addition(bucket, 0, self.lengths[bucket], tuple(sources))]

    def _in_turn(self, bucket: int) -> list[int]:
        """Return, once, the instances whose turn it is: those next by number that have given, without a gap."""
        first = self._turn[bucket]
        while self._turn[bucket] in self._given[bucket]:
            self._turn[bucket] += 1
        return list(range(first, self._turn[bucket]))


register(ServerGather)
