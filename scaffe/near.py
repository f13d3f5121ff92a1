"""Names that are near a wrong one, for the end of an error's text."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CUTOFF = 0.76  # of difflib's ratio: a letter or two are wrong; bias_filler is not near filler, at 0.75


def near(given: str, known: Iterable[str], title: str = "") -> str:
    """Return "; did you mean 'NAME'?" with the known name that is nearest to the one given.

    Capitals, hyphens and underscores do not count, nor does the order of the letters. Where no name is near, return "",
    or with a title all of them: "; TITLE: NAME NAME".
    """
    wanted, names = _plain(given), {_plain(name): name for name in known}
    found = get_close_matches(wanted, names, 1, CUTOFF) or [one for one in names if sorted(one) == sorted(wanted)]
    if found:
        return f"; did you mean '{names[found[0]]}'?"
    return f"; {title}: {' '.join(names.values())}" if title else ""


def _plain(name: str) -> str:
    plain = name.lower().replace("-", "").replace("_", "")
    return plain.removesuffix("param") or plain  # which makes fields such as prelu_param alike
