"""Server: gradients are added to one buffer as they come (ParaX's gradient server, section 4.2)."""

from __future__ import annotations

from scaffe.parallel.instances.gathers.gather import RESULT, Addition, Gather, register


class ServerGather(Gather):
    """Each bucket of RESULT is added to by one thread at a time, which adds all gradients that came meanwhile.

    A thread that finds its bucket in use leaves its gradients to the thread that uses it, and goes on. So gradients
    meet under mutual exclusion, but no thread waits. Sums depend on the order in which gradients come. With
    `deterministic` the order of adding is that of the instances' numbers; gradients that come before their turn wait.

    Passes over the buffer: n reads of gradients, and at most n writes and n - 1 reads of RESULT; fewer where several
    gradients are added at once.
    """

    name = "server"
    repeats = False
    in_place = False

    def reset(self) -> None:
        """Expect the instances' gradients of each bucket."""
        self._come: list[list[int]] = [[] for _ in self.lengths]  # and not added yet
        self._used = [False] * len(self.lengths)
        self._added = [0] * len(self.lengths)

    def given(self, instance: int, bucket: int) -> list[Addition]:
        """Return the bucket's next addition, unless another thread adds to it."""
        self._come[bucket].append(instance)
        return [] if self._used[bucket] else self._next(bucket)

    def added(self, addition: Addition) -> list[Addition]:
        """Return the bucket's next addition, of what has come meanwhile."""
        bucket = addition.bucket
        self._used[bucket] = False
        self._added[bucket] += sum(source != RESULT for source in addition.sources)
        self.complete[bucket] = self._added[bucket] == self.size
        return self._next(bucket)

    def _next(self, bucket: int) -> list[Addition]:
        """Return an addition of all gradients whose turn it is; none if there are none."""
        first = self._added[bucket]
        taken = self._in_turn(first, self._come[bucket]) if self.deterministic else list(self._come[bucket])
        if not taken:
            return []
        self._used[bucket] = True
        self._come[bucket] = [instance for instance in self._come[bucket] if instance not in taken]
        sources = (RESULT, *taken) if first else tuple(taken)
        return [Addition(bucket, 0, self.lengths[bucket], sources)]

    @staticmethod
    def _in_turn(first: int, come: list[int]) -> list[int]:
        """Return the instances from `first` on that have come, without a gap."""
        stop = first
        while stop in come:
            stop += 1
        return list(range(first, stop))


register(ServerGather)
