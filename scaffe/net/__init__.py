"""Net: layers over blobs, and what it is made of: its graph, passes, batches and callbacks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaffe.net.net import Net as Net


def __getattr__(name: str) -> Any:
    """Return Net, imported when it is first asked for: the parts of a net are also used without it."""
    if name == "Net":
        from scaffe.net.net import Net

        return Net
    raise AttributeError(f"module 'scaffe.net' has no attribute '{name}'")
