"""The figures without a module: they can't be reproduced here, each with its reason."""

from __future__ import annotations

CURVES = "the text has no number of it"
HARDWARE = "other hardware"

IMPOSSIBLE = {  # by paper: what, why
    "numa-caffe": {
        "Table 2, section 5.2": "latencies by hardware counters on four sockets; one NUMA node here",
        "Figures 3 and 4": f"parts of figures 9 and 10; {CURVES}",
        "Figure 5, table 4": "remote loads by function, hardware counters; their bytes are in numa-caffe-9",
        "Figure 9, HBM; KNL": HARDWARE,
        "Section 5.1.4": f"a K40c beside four nodes: {HARDWARE}",
    },
    "parax": {
        "Figures 2 and 3": f"an i7, a P100: {HARDWARE}; {CURVES}",
        "Figure 25 (GNMT)": f"{CURVES}, neither words nor steps; `scaffe models gnmt` is our reading of the net",
    },
    "s-caffe": {
        "Figure 12, 133x over OpenMPI": "a defect of one version's staging of GPU memory",
        "Figure 8, 14 % and 9 % over Nvidia's Caffe": f"{HARDWARE}, and a system that is not at hand",
        "Figure 10, CNTK and Inspur-Caffe": "systems that are not at hand, on K80",
        "Section 4.1, readers": "Lustre",
    },
    "singlecaffe": {
        "Figure 9, Intel-Caffe and TensorFlow": "versions of 2018",
        "Figure 10": f"figure 9 for variants of the nets and solvers; {CURVES}",
        "Section 1, 20 to 30 % efficiency": "quoted from elsewhere",
    },
    "swcaffe": {
        "Figure 2": "DMA of one chip",
        "Table II, times; which kernel wins": f"{HARDWARE}: a register mesh without caches",
        "Figures 8 and 9": f"{HARDWARE}; {CURVES}; their totals are in swcaffe-8",
        "Section 6.2": "PCIe of a K40m",
        "Section V.B, stripes": "a file system with 32 arrays",
    },
}
