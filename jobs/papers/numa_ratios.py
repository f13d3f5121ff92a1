"""Ratios: how many times faster a system is, as NUMA-Caffe's section 5.1 states it and as figures 9 to 11 are checked.

Rates are images/s by net, machine and system, lists for 1, 2, 4, ... nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from figure import Check, Data
from numa_nodes import BOXES, counts

DDR, HBM = "KNL", "KNL, HBM"
OVER = {  # paper: net, machine, system, over which, at how many nodes: how many times
    ("AlexNet", "SB", "NUMA", "Intel", 4): 3.2 / 1.38,
    ("CIFAR-10", "SB", "NUMA", "Intel", 2): 1.15,
    ("CIFAR-10", "SB", "NUMA", "Intel", 4): 1.36,
    ("CIFAR-10", "BW", "NUMA", "Intel", 2): 1.4,
    ("CIFAR-10", "BW", "NUMA", "Intel", 4): 2.2,
    ("GoogLeNet", "SB", "Intel", "BVLC", 4): 3.6,
    ("GoogLeNet", "BW", "Intel", "BVLC", 4): 5.6,
    ("GoogLeNet", "AMD", "Intel", "BVLC", 8): 4.75,
    ("GoogLeNet", "SB", "NUMA", "Intel", 4): 2.0,
    ("GoogLeNet", "BW", "NUMA", "Intel", 4): 1.7,
    ("GoogLeNet", "AMD", "NUMA", "Intel", 2): 1.1,
    ("GoogLeNet", "AMD", "NUMA", "Intel", 4): 2.2,
    ("GoogLeNet", "AMD", "NUMA", "Intel", 8): 3.0,
    ("GoogLeNet", "SB", "NUMA", "BVLC", 4): 8.0,
    ("GoogLeNet", "BW", "NUMA", "BVLC", 4): 9.6,
    ("GoogLeNet", "AMD", "NUMA", "BVLC", 8): 14.0,
    ("AlexNet", HBM, "NUMA", "Intel", 4): 1.29,
    ("CIFAR-10", HBM, "NUMA", "Intel", 4): 1.06,
}
GAINS = {("AlexNet", "NUMA"): 2.0, ("CIFAR-10", "NUMA"): 1.12, ("CIFAR-10", "Intel"): 1.33}  # of HBM over DDR4


def over(rates: Data, key: tuple[str, str, str, str, int]) -> float:
    """Return a system's rate over another's, of a key of OVER; -1 nodes are all."""
    net, box, system, other, nodes = key
    i = -1 if nodes < 0 else counts(BOXES[box]).index(nodes)
    return float(rates[net][box][system][i] / rates[net][box][other][i])


def scaling(box: str, rates: dict[str, list[float]]) -> Iterator[Check]:
    """Yield the checks of AlexNet's scaling on a machine: rates by system."""
    yield Check(f"AlexNet, {box}: BVLC, 4 nodes over 1", rates["BVLC"][2] / rates["BVLC"][0], high=1.1)
    if box != "AMD":
        yield Check(f"AlexNet, {box}: Intel, 4 nodes over 2", rates["Intel"][2] / rates["Intel"][1], high=1.3)
    what = f"AlexNet, {box}: NUMA, speedup of all nodes over their number"
    yield Check(what, rates["NUMA"][-1] / (BOXES[box].nodes * rates["NUMA"][0]), 0.8)
    yield Check(f"AlexNet, {box}: Intel / BVLC, all nodes", rates["Intel"][-1] / rates["BVLC"][-1], 3, 10)
