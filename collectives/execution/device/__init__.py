"""Collectives on device arrays: memory of a GPU, which CuPy's arrays lie in.

| file | what is in it |
|---|---|
| device.py | what is asked of a device: streams, events, copies, kernels, handles |
| cuda.py | that device, by CuPy |
| kernels.py | its kernels, CUDA C |
| moves.py | how an execution moves chunks: MPI takes them where they lie, or through pinned slots |
| aware.py | does the MPI library take device pointers? |
| plans.py | the plans that no schedule makes: slices of a node by CUDA IPC, and the library's own collective |
| nccl.py | NCCL's collectives, and the order in which ranks launch them |
| hierarchy.py | inside nodes by one of these, between nodes by a schedule |
| choice.py | which of them is for what, and what is done instead |

What tells devices apart is in device.py alone, so that a stand-in can take the GPU's place: the tests run all the rest
with one whose copies and kernels happen late and out of step, as a GPU's do. On a real GPU nothing here has run yet.
"""
