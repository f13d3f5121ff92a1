"""Collectives on device arrays: CuPy's, in the memory of a GPU.

| file | contents |
|---|---|
| device.py | the protocol of a device: streams, events, copies, kernels, memory handles |
| cuda.py | that device, by CuPy |
| kernels.py, codec_kernels.py | its kernels, CUDA C++ |
| transports.py | how an execution moves chunks: MPI takes device pointers, or chunks pass through pinned slots |
| coded.py | messages of fewer bytes, which kernels write, by one of these transports |
| aware.py | whether the MPI library takes device pointers |
| plans.py | plans without a schedule: slices and blocks of a node by CUDA IPC, and the library's own collective |
| nccl.py | NCCL's collectives, and the order in which ranks launch them |
| through_host.py | inside a node by pinned host memory, where a lost process must keep no GPU waiting |
| hierarchy.py | one of these inside nodes, and each GPU's part by a schedule between nodes |
| choice.py | which of them suits a call, and what replaces one that can't run |

Only cuda.py and nccl.py know CUDA. The tests run the rest with a stand-in for the GPU, whose copies and kernels run
late and out of step, as a GPU's do.
"""
