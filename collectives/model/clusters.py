"""Descriptions of clusters for the model: figures of a paper or a data sheet, and assumptions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectives.errors import CollectiveError
from collectives.group import Group


@dataclass(frozen=True)
class Cluster:
    """The times of a cluster, in seconds and seconds per byte.

    A message of b bytes takes `alpha` + b `beta` between nodes and `alpha_in` + b `beta_in` between ranks of a node, on
    free links. Adding b bytes takes b `gamma`. `nics` messages leave, and as many enter, a node at full speed; more
    share it. One in `oversubscription` of a supernode's nodes can send out of it at full speed at a time.

    The tables of tuning also use:

    - `memory`: seconds in which all cores of a node move a byte to or from memory; nothing within `cache` bytes is
      moved;
    - `sync`: seconds in which a node's ranks synchronize;
    - `foreign`: how many times longer the memory of another process takes;
    - `eager`: the longest message, in bytes, that is sent eagerly; longer chunks delay each other. 0: they never do;
    - `two_way`: how many times longer such a message takes while another comes back.
    """

    name: str
    nodes: int
    ranks_per_node: int
    alpha_in: float
    beta_in: float
    alpha: float
    beta: float
    gamma: float
    nics: int = 1
    nodes_per_supernode: int | None = None
    oversubscription: float = 1.0
    source: str = ""
    memory: float = 0.0
    sync: float = 0.0
    cache: int = 0
    foreign: float = 1.0
    eager: int = 0
    two_way: float = 1.0

    def between(self, ranks: int) -> tuple[float, float]:
        """Return the seconds of a message, and of each of its bytes, between the farthest of so many ranks."""
        return (self.alpha, self.beta) if ranks > self.ranks_per_node else (self.alpha_in, self.beta_in)

    def of_nodes(self, senders: int) -> Cluster:
        """Return the cluster whose ranks are the nodes, of each of which so many ranks share the adapters."""
        return replace(self, ranks_per_node=1, beta=self.beta * max(1.0, senders / self.nics), nics=1)

    def group(self, ranks: int) -> Group:
        """Return `ranks` ranks that fill node after node, also more than the cluster has."""
        return Group.uniform(ranks, self.ranks_per_node, self.nodes_per_supernode)


KESCH = Cluster(
    name="kesch",
    nodes=12,
    ranks_per_node=16,
    alpha_in=20e-6,
    beta_in=1 / 8e9,
    alpha=30e-6,
    beta=1 / 6e9,
    gamma=1 / 60e9,
    source="S-Caffe, section 6.1, Cluster-A: 12 nodes of 8 K-80 (16 devices), Connect-IB. Assumed: 8 GB/s between "
    "devices over PCIe 3, 6 GB/s between nodes (one FDR port), a kernel start and a rendezvous in each alpha, adds at "
    "a quarter of the device's 240 GB/s.",
)

CLUSTER_B = Cluster(
    name="cluster-b",
    nodes=20,
    ranks_per_node=2,
    alpha_in=20e-6,
    beta_in=1 / 10e9,
    alpha=30e-6,
    beta=1 / 10e9,
    gamma=1 / 60e9,
    source="S-Caffe, section 6.1, Cluster-B: 20 nodes of one K-80 (2 devices), EDR. Assumed: 10 GB/s on both.",
)

TAIHULIGHT = Cluster(
    name="taihulight",
    nodes=40960,
    ranks_per_node=1,
    alpha_in=1e-6,
    beta_in=1 / 28e9,
    alpha=5e-6,
    beta=1 / 12e9,
    gamma=3 / 28e9,
    nodes_per_supernode=256,
    oversubscription=4,
    source="swCaffe, section II.B: supernodes of 256 nodes, 12 GB/s between nodes with MPI, a quarter of it between "
    "supernodes; section III: 28 GB/s of memory, of which an addition moves three times its bytes. Assumed: alpha "
    "(the paper's microseconds); 40,960 nodes is the machine's size.",
)

NVLINK_NDR = Cluster(
    name="nvlink-ndr",
    nodes=12500,
    ranks_per_node=8,
    alpha_in=8e-6,
    beta_in=1 / 300e9,
    alpha=12e-6,
    beta=1 / 45e9,
    gamma=1 / 800e9,
    nics=8,
    nodes_per_supernode=32,
    source="A node of 8 devices with NVLink 4 (450 GB/s one way by its data sheet) and 8 NDR adapters (400 Gbit/s "
    "each), full fat tree. Assumed: two thirds and nine tenths of that, a kernel start in each alpha, adds at a "
    "quarter of 3.35 TB/s.",
)

ETHERNET = Cluster(
    name="ethernet",
    nodes=64,
    ranks_per_node=1,
    alpha_in=5e-6,
    beta_in=0.3e-9,
    alpha=30e-6,
    beta=1 / 118e6,
    gamma=0.19e-9,
    memory=1 / 20e9,
    sync=200e-6,
    cache=32 << 20,
    foreign=2.3,
    eager=60 << 10,
    two_way=2,
    source="Nodes without GPUs, joined by gigabit Ethernet. Measured with Open MPI 5.0 between two ranks of a "
    "virtual machine: 0.49 ns a byte in MPI_Reduce (of 64 MB, in 32 ms; four ranks take two rounds of that), 20 GB/s "
    "of memory, a third of it an addition, 2.3 times as long across processes; 32 MB of cache; messages over 64 KiB by "
    "TCP, both ways at once, at half speed. Assumed: 30 us and 118 MB/s, as of TCP; 200 us to synchronize a node's "
    "ranks, so that messages of 256 KB, where caches decide, stay with the library.",
)

INFINIBAND = replace(
    ETHERNET,
    name="infiniband",
    alpha=2e-6,
    beta=1 / 12e9,
    eager=0,
    two_way=1,
    source="Nodes without GPUs, as those of ethernet, joined by EDR: 12 GB/s and 2 us by its data sheets.",
)

CLUSTERS = {c.name: c for c in (KESCH, CLUSTER_B, TAIHULIGHT, NVLINK_NDR, ETHERNET, INFINIBAND)}


def find_cluster(name: str) -> Cluster:
    """Return the cluster `name`. Raise CollectiveError for an unknown one."""
    if name not in CLUSTERS:
        raise CollectiveError(f"unknown cluster '{name}'; known are {', '.join(CLUSTERS)}")
    return CLUSTERS[name]
