"""The gathers, one per module. Importing this package imports every module, and each registers its gather."""

from importlib import import_module
from pkgutil import iter_modules


def discover() -> None:
    """Import each module of this package."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


discover()
