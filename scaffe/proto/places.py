"""Places of layers in the text of a prototxt, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf import text_format

Position = tuple[int, int]  # line and column, from 1


class Token(NamedTuple):
    """A token of a prototxt."""

    position: Position
    text: str


@dataclass
class BracedText:
    """A message in braces: the name of its field, where it is, and its own fields of one token."""

    name: str
    first: Position
    last: Position = (1 << 31, 0)
    values: dict[str, Token] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of all fields in it, also in its messages, as often as they stand

    def text(self, name: str) -> str:
        """Return the value of a field, without quotes; "" where it has none."""
        return self.values[name].text.strip("'\"") if name in self.values else ""

    def line(self, name: str) -> int:
        """Return the line of a field's value, or that of the block where it has no such field."""
        return self.values[name].position[0] if name in self.values else self.first[0]


def layers(text: str) -> list[BracedText]:
    """Return the layers of a prototxt, an inner one before the one around it; a text that is wrong may lack some."""
    open_blocks, found = [BracedText("", (0, 0))], []
    name, before = "", ""
    for token in _tokens(text):
        if token.text in ("{", "<"):
            open_blocks.append(BracedText(name, token.position))
        elif token.text in ("}", ">") and len(open_blocks) > 1:
            open_blocks[-1].last = token.position
            found.append(open_blocks.pop())
            open_blocks[-1].names += [found[-1].name, *found[-1].names]
        elif before == ":":
            open_blocks[-1].values.setdefault(name, token)
            open_blocks[-1].names.append(name)
        elif token.text not in (":", ";", ","):
            name = token.text
        before = token.text
    return [block for block in (*found, *reversed(open_blocks)) if block.name in ("layer", "layers")]


def layer_at(text: str, position: Position) -> BracedText | None:
    """Return the layer of a prototxt that has this position, None where there is none."""
    return next((layer for layer in layers(text) if layer.first <= position <= layer.last), None)


def _tokens(text: str) -> Iterator[Token]:
    """Yield the tokens, up to the first that is none."""
    try:
        tokens = text_format.Tokenizer(text.split("\n"))
        while not tokens.AtEnd():
            at = tokens.ParseError("")  # type: ignore[arg-type]
            yield Token((at.GetLine() or 0, at.GetColumn() or 0), tokens.token)
            tokens.NextToken()
    except text_format.ParseError:
        return
