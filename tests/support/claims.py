"""Claims: what README and the pages claim, and the tests that hold it, as tests/claims.md lists them.

python tests/support/claims.py [WORD ...]     the claims with these words in claim, page or test
python tests/support/claims.py no test        those that no test holds
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

TEXT, FIGURES = (Path(__file__).resolve().parents[1] / "claims.md").read_text().split("## Figures")
ROW = re.compile(r"^\| (?P<claim>.+) \| (?P<pages>.+) \| (?P<tests>.+) \|$", re.MULTILINE)
UNTESTED = "no test"


class Claim(NamedTuple):
    """A claim, the pages that make it, and the tests that hold it, as `file.py::test` with commas between."""

    claim: str
    pages: str
    tests: str

    def report(self) -> str:
        """Return the claim, and below it its pages and each of its tests."""
        return "\n    ".join([self.claim, f"in {self.pages}", *self.tests.replace("`", "").split(", ")])


CLAIMS = [Claim(*row) for row in ROW.findall(TEXT) if row[0] != "claim"]


def chosen(words: Sequence[str]) -> Iterator[Claim]:
    """Iterate over the claims that contain these words, one after the other, in any case."""
    text = " ".join(words).lower()
    return (one for one in CLAIMS if text in " ".join(one).lower())


if __name__ == "__main__":
    for one in chosen(sys.argv[1:]):
        print(one.report())
