"""ONNX: nets and their weights written as ONNX models, and ONNX models read as nets.

`out` has the layers that are written, a group a module; `into` the ops that are read. Each registers itself.
"""
