"""Methods that PyTorch's compiler must not look into."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")

from collectives.torch import graphs  # noqa: E402


def test_public_methods_and_aliases_are_kept_out_once_there_is_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base:
        __module__ = "collectives.torch.somewhere"

        def reduce(self) -> str:
            """Its text."""
            return "as it is"

        def _own(self) -> str:
            return "as it is"

        def end(self) -> str:
            return "as it is"

        def _allgather_base(self) -> str:
            return "as it is"

    class Foreign:
        def size(self) -> str:
            return "as it is"

    @graphs.outside_graphs
    class Kind(Base, Foreign):
        __module__ = "collectives.torch.elsewhere"

    def called() -> dict[str, str]:
        return {name: getattr(Kind(), name)() for name in ("reduce", "_own", "end", "_allgather_base", "size")}

    monkeypatch.setattr(torch, "compiler", SimpleNamespace(disable=lambda method: lambda self: "outside graphs"))
    monkeypatch.delitem(sys.modules, graphs.COMPILER, raising=False)
    assert {*called().values()} == {"as it is"}
    monkeypatch.setitem(sys.modules, graphs.COMPILER, torch)
    assert {name for name, found in called().items() if found == "outside graphs"} == {"reduce", "_allgather_base"}
    assert Kind.reduce.__doc__ == "Its text."
