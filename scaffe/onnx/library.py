"""The package onnx, an extra."""

from __future__ import annotations

from typing import Any

from scaffe.errors import ScaffeError


def library() -> Any:
    """Return the package onnx. Raise ScaffeError where it is not installed."""
    try:
        import onnx
    except ImportError:
        raise ScaffeError("ONNX models need onnx, which is not installed: pip install 'scaffe[onnx]'") from None
    return onnx
