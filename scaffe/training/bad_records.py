"""Bad records that data layers replaced: counted over the ranks, logged, and an error if there are too many."""

from __future__ import annotations

from collections.abc import Sequence

from readers import Reading
from readers.skipping import LEAST, allowed
from scaffe.errors import BadRecordsError
from scaffe.layers.base_data import BaseData
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.world import World

TOLD = 5  # bad records that a rank's log names for a layer


class BadRecords:
    """Counts the records that the data layers of all nets have read in this run, and the bad ones among these."""

    def __init__(self, nets: Sequence[Net], settings: Reading):
        self._fraction = settings.max_bad_records
        self._layers = [layer for net in nets for layer in net.data_layers()] if settings.bad_records == "skip" else []
        self._told: dict[BaseData, set[str]] = {}
        self._earlier = [0.0, 0.0]  # bad records and records read by nets that these have replaced

    def follow(self, earlier: BadRecords) -> None:
        """Go on from the counts of nets that these replace."""
        self._earlier = earlier.counts() or self._earlier

    def counts(self) -> list[float]:
        """Return this rank's bad records and records read, [] where bad records are errors. Log the first bad ones."""
        if not self._layers:
            return []
        for layer in self._layers:
            if layer.complaints:
                self._tell(layer)
        bad, read = self._earlier
        mine = [(layer.bad_read, layer.records_read) for layer in self._layers]
        return [bad + sum(one for one, _ in mine), read + sum(one for _, one in mine)]

    def _tell(self, layer: BaseData) -> None:
        """Log the first bad records of a layer, each once."""
        told = self._told.setdefault(layer, set())
        for said in layer.complaints:
            if len(told) < TOLD and said not in told:
                told.add(said)
                log.warning("layer '%s': passed over a bad record: %s", layer.name, said)
                if len(told) == TOLD:
                    log.warning("layer '%s': further bad records are only counted", layer.name)
        layer.complaints.clear()

    def check(self, counts: Sequence[float]) -> None:
        """Raise BadRecordsError if, by the ranks' sums, too many of the records read, or of LEAST, are bad."""
        bad, read = (int(count) for count in counts or (0, 0))
        if bad > allowed(self._fraction, read):
            raise BadRecordsError(
                f"{bad} of {read} records read so far are bad, more than {self._fraction:g} of {max(read, LEAST)}: "
                "mend them (the log names the first), or raise --max-bad-records"
            )

    def finish(self, world: World) -> None:
        """Log how many were replaced, on which ranks. Raise BadRecordsError if they are too many. Collective."""
        if not self._layers:
            return
        ranks = world.allgather(self.counts())
        bad, read = (sum(column) for column in zip(*ranks, strict=True))
        where = ", ".join(f"rank {rank}: {int(counts[0])}" for rank, counts in enumerate(ranks) if counts[0])
        log.info("Bad records: %d of %d read were replaced by others%s", bad, read, f" ({where})" if where else "")
        self.check([bad, read])
