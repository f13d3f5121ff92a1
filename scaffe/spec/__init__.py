"""Spec: nets written in Python, as pycaffe's NetSpec."""
