"""Pages: docs/papers/PAPER.md of each paper's figures, figures.md and README.md's table of all."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import beyond
from figure import NOT_TRIED, Data, Figure, Input, claims
from verdicts import INCONCLUSIVE, NOT_TESTABLE, REPRODUCED, VERDICTS, Judged

from scaffe.files.atomic import write_atomically

RESULTS = Path(__file__).resolve().parent / "results"
QUIET = 0.2  # cores that other work uses
TITLES = {
    "s-caffe": "S-Caffe",
    "swcaffe": "swCaffe",
    "numa-caffe": "NUMA-Caffe",
    "parax": "ParaX",
    "singlecaffe": "SingleCaffe",
}
HEADLINES = (  # of README.md: one or two for each system
    "s-caffe-11", "s-caffe-8", "swcaffe-7", "swcaffe-10", "numa-caffe-8", "numa-caffe-9", "parax-11", "singlecaffe-9",
)  # fmt: skip
README_TABLE = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->\n)", re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """A figure, what is kept of it, and its verdict."""

    figure: Figure
    kept: Data
    judged: Judged

    @property
    def paper(self) -> str:
        """Return the paper that the figure is of, as its page is called."""
        return self.figure.id.rpartition("-")[0]


def kept(name: str) -> Data:
    """Return what is kept of a figure's measurement and of its model; {} for nothing."""
    file = RESULTS / f"{name}.json"
    found: Data = json.loads(file.read_text()) if file.exists() else {}
    return found


def modelled(figure: Figure, found: Data) -> Data:
    """Return what a figure's model predicts: of a slow one as it is kept."""
    return found["model"] if figure.slow else figure.model(found.get("measured", {}))


def shown(figure: Figure) -> Shown:
    """Return a figure with its verdict: inconclusive where nothing is kept of a measurement or of a slow model."""
    found = kept(figure.id)
    if not found and (figure.slow or type(figure).measure is not Figure.measure):
        return Shown(figure, found, Judged(INCONCLUSIVE, "-"))
    return Shown(figure, found, figure.judge(found.get("measured", {}), modelled(figure, found)))


def write(folder: Path, readme: Path, figures: Sequence[Figure]) -> None:
    """Write into a folder the pages of the papers, and figures.md; README.md's table."""
    found = [shown(figure) for figure in figures]
    texts = {paper: list(page(paper, found)) for paper in TITLES}
    texts |= {"figures": list(overview(found)), "beyond": list(beyond.page())}
    for name, lines in texts.items():
        write_atomically(folder / f"{name}.md", ("\n".join(lines) + "\n").encode())
    table = "\n".join(headlines(found))
    text = README_TABLE.sub(lambda marks: f"{marks[1]}{table}\n{marks[2]}", readme.read_text())
    write_atomically(readme, text.encode())


def headlines(found: Sequence[Shown]) -> Iterator[str]:
    """Yield README.md's table, and how many of all figures have which verdict."""
    yield "| system | headline | verdict |\n|---|---|---|"
    by_name = {one.figure.id: one for one in found}
    for name in HEADLINES:
        one = by_name[name]
        link = f"docs/papers/{one.paper}.md#{name}"
        yield f"| {TITLES[one.paper]} | [{one.figure.title}]({link}): {one.figure.paper} | {one.judged.verdict} |"
    yield f"\n{counted(found)}"


def counted(found: Sequence[Shown]) -> str:
    """Return how many figures have each verdict."""
    counts = Counter(one.judged.verdict for one in found)
    each = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in VERDICTS[1:] if counts[verdict])
    return f"Of {len(found)} figures' headlines {counts[REPRODUCED]} are reproduced. {each.capitalize()}."


def overview(found: Sequence[Shown]) -> Iterator[str]:
    """Yield the lines of the table of all figures."""
    yield "# All figures\n\n`jobs/papers.sh` makes this page. One sentence of each figure is tested;"
    yield "[how it is judged](../papers.md#how-a-figure-is-judged).\n"
    yield f"{counted(found)} Measurements take {sum(one.kept.get('seconds', 0) for one in found) / 60:.0f} minutes.\n"
    yield "| figure | paper | ours | evidence | verdict |\n|---|---|---|---|---|"
    for one in found:
        yield row(one, f"{one.paper}.md#{one.figure.id}")


def row(one: Shown, link: str) -> str:
    """Return a figure's line in a table."""
    figure = one.figure
    name = f"[{figure.id}]({link}): {figure.title}"
    return f"| {name} | {figure.paper} | {one.judged.ours} | {figure.tag} | {one.judged.verdict} |"


def page(paper: str, found: Sequence[Shown]) -> Iterator[str]:
    """Yield a paper's page."""
    own = [one for one in found if one.paper == paper]
    yield f"# {TITLES[paper]}, reproduced\n\n`jobs/papers.sh` makes this page."
    yield "[How a figure is judged](../papers.md#how-a-figure-is-judged), [terms](../papers.md#terms).\n"
    yield "| figure | paper | ours | evidence | verdict |\n|---|---|---|---|---|"
    yield from (row(one, f"#{one.figure.id}") for one in own)
    for one in own:
        yield from section(one)
    yield "\n## Not tried\n\n| what | why |\n|---|---|"
    yield from (f"| {what} | {why} |" for what, why in claims()[NOT_TRIED][paper].items())


def section(one: Shown) -> Iterator[str]:
    """Yield a figure's section."""
    figure = one.figure
    yield f"\n## {figure.id}\n\n{figure.title}.\n"
    yield f"> {figure.quote}\n>\n> {TITLES[one.paper]}, {figure.where}\n"
    yield f"- Paper: {figure.paper}.\n- Ours: {one.judged.ours}.\n- Evidence: {figure.tag}{under(one.kept)}."
    yield f"- Verdict: **{one.judged.verdict}**.\n"
    if one.judged.verdict != NOT_TESTABLE:
        yield f"![{figure.title}]({figure.id}.png)\n"
    if figure.inputs:
        yield "| input | value | range | unit | origin |\n|---|---|---|---|---|"
        yield from (input_row(given) for given in figure.inputs)
        yield ""
    yield "\n\n".join(figure.differs)


def input_row(given: Input) -> str:
    """Return an input's line."""
    ends = "-" if given.low is None and given.high is None else f"{of_end(given.low)} to {of_end(given.high)}"
    return f"| {given.name} | {given.value:.4g} | {ends} | {given.unit} | {given.origin}: {given.where} |"


def of_end(end: float | None) -> str:
    """Return an end of a range."""
    return "as it is" if end is None else f"{end:.4g}"


def under(found: Data) -> str:
    """Return when a figure was measured, and beside which other work; "" for a model alone."""
    if not found.get("measured"):
        return ""
    noisy = found.get("busy", 0.0) > QUIET
    other = f"other work on {found['busy']:.2g} cores, which distorts times" if noisy else "quiet"
    return f"; measured {found['date']} on {found['machine']}, {other}"
