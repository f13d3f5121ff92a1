"""The figures without a module: they can't be reproduced here, each with its reason."""

from __future__ import annotations

CURVES = "the text has no number of it"
HARDWARE = "other hardware"

IMPOSSIBLE = {  # by paper: what, why
    "numa-caffe": {
        "Table 2; section 5.2, latency, wait and spin": "hardware counters on four sockets; one NUMA node here",
        "Figures 5 and 9 to 14, tables 3 to 6, measured": "several NUMA nodes, KNL with HBM; they are modelled",
        "Section 5.1.4": f"a K40c beside four nodes: {HARDWARE}",
    },
    "parax": {
        "Figures 2 and 3": f"an i7, a P100: {HARDWARE}; {CURVES}",
        "Figure 12, the mix of layers over time": f"{CURVES}; the use of cores and of bandwidth is in parax-11",
        "Figure 25 (GNMT)": f"{CURVES}; of the data, IWSLT2015, neither languages nor words nor steps; "
        "`scaffe models gnmt` is our reading of the net",
    },
    "s-caffe": {
        "Figure 12, 133x over OpenMPI": "a defect of one version's staging of GPU memory",
        "Figure 11 on 2 nodes of 4 ranks, on 4 of 2": "chains in nodes and a binomial tree above send as much between "
        "nodes as a binomial tree over all ranks: the model has them equal, within 1 %",
        "Figure 13 on 2 and 8 nodes": "at table 2's share on 4 alone, in s-caffe-13; s-caffe-8 measures SC-B and SC-OB "
        "on 2, 4 and 8, at another share",
        "Figure 8, 14 % and 9 % over Nvidia's Caffe": f"{HARDWARE}, and a system that is not at hand",
        "Figure 10, CNTK and Inspur-Caffe": "not at hand; a parameter server and a ring of scaffe's are in s-caffe-10",
        "Section 4.1, LMDB past 64 readers": "Lustre, and as many cores",
    },
    "singlecaffe": {
        "Figure 9, Intel-Caffe and TensorFlow": "versions of 2018",
        "Section 1, 20 to 30 % efficiency": "quoted from elsewhere",
    },
    "swcaffe": {
        "Figure 2, GB/s": f"DMA of one chip; {CURVES}; its shape is in swcaffe-2",
        "Figure 2, the MPE's copy of 9.9 GB/s": f"{HARDWARE}: the chip's managing core; the text has its rate alone",
        "Figure 6, InfiniBand FDR": f"{HARDWARE}: Sunway's latency is higher past 2 KB; sizes here are in swcaffe-6",
        "Table II, seconds": f"{HARDWARE}: a register mesh without caches; which way wins is in swcaffe-4",
        "Figures 8 and 9, seconds": f"{HARDWARE}; {CURVES}; their layers are modelled in swcaffe-9",
        "Section 6.2": "PCIe of a K40m",
        "Section V.B, measured": "a file system with 32 arrays; its readers are counted in swcaffe-5",
    },
}
