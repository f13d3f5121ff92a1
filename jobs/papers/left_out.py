"""The figures without a module: those that can't be reproduced here, each with its reason, and those not tried yet."""

from __future__ import annotations

CURVES = "the text has no number of it"
HARDWARE = "other hardware"

IMPOSSIBLE = {  # by paper: what, why
    "numa-caffe": {
        "Table 2, section 5.2": "latencies by hardware counters on four sockets; one NUMA node here",
        "Figures 3 and 4": f"parts of figures 9 and 10; {CURVES}",
        "Table 4": "remote loads by function, hardware counters",
        "Figure 9, HBM; KNL": HARDWARE,
        "Section 5.1.4": f"a K40c beside four nodes: {HARDWARE}",
    },
    "parax": {
        "Figures 2 and 3": f"an i7, a P100: {HARDWARE}; {CURVES}",
        "Figure 25 (GNMT)": "net and data are not at hand",
    },
    "s-caffe": {
        "Figure 12, 133x over OpenMPI": "a defect of one version's staging of GPU memory",
        "Figure 10, CNTK and Inspur-Caffe": "systems that are not at hand, on K80",
        "Section 4.1, readers": "Lustre",
    },
    "singlecaffe": {
        "Figure 9, Intel-Caffe and TensorFlow": "versions of 2018",
        "Section 1, 20 to 30 % efficiency": "quoted from elsewhere",
    },
    "swcaffe": {
        "Figure 2": "DMA of one chip",
        "Table II, times": HARDWARE,
        "Table III, SW26010 and K40m": HARDWARE,
        "Section 6.2": "PCIe of a K40m",
        "Section V.B, stripes": "a file system with 32 arrays",
    },
}

OPEN = {  # by paper: what a measurement or a model here could still say
    "numa-caffe": ("Section 1, memory of processes", "Table 3 and 6", "Section 3.2", "Figures 12 to 14"),
    "parax": ("Figure 6", "Figures 13 and 14", "Figures 18 and 19", "Figures 20 to 24", "Section 4.3"),
    "s-caffe": ("Figure 9", "Figure 10"),
    "singlecaffe": ("Figures 6 and 7", "Figure 8", "Figure 10"),
    "swcaffe": ("Table I", "Table II, which kernel wins", "Figures 8 and 9", "Table III, order of nets"),
}
