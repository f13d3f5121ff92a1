"""Pages: docs/papers/PAPER.md from the results of its figures, figures.md and README.md's table from all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from left_out import IMPOSSIBLE

from scaffe.atomic import write_atomically
from scaffe.papers import NOT_REPRODUCED, Result, counted, cut, expected, results, summary, under, verdict

BEYOND = "beyond"
QUIET = 0.2  # cores that other work uses
TITLES = {
    BEYOND: "Beyond each paper",
    "numa-caffe": "NUMA-Caffe",
    "parax": "ParaX",
    "s-caffe": "S-Caffe",
    "singlecaffe": "SingleCaffe",
    "swcaffe": "swCaffe",
}
HEADLINES = (  # one for each part of what the papers claim, the most telling first; the last one is the gate
    "s-caffe-11", "swcaffe-7", "s-caffe-13", "singlecaffe-9", "parax-15", "swcaffe-10", "s-caffe-8", "parax-11",
    "numa-caffe-9", "numa-caffe-8",
)  # fmt: skip
WIDTH = 160  # characters of a cell in the table of all figures
SIMULATED = re.compile(r"(model|simulated) (over measured|off)")  # in a check of a simulation of what was measured
README_TABLE = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->\n)", re.DOTALL)


def write(folder: Path, readme: Path, known: Sequence[str]) -> None:
    """Write into a folder the pages of papers with results of `known` figures, and figures.md; README.md's table."""
    found = [one for one in results() if one["id"] in known]
    texts = {paper: paper_page(paper, [one for one in found if paper_of(one) == paper]) for paper in TITLES}
    texts["figures"] = list(overview(found))
    for name, lines in texts.items():
        if lines:
            write_atomically(folder / f"{name}.md", ("\n".join(lines) + "\n").encode())
    write_atomically(readme, in_readme(readme.read_text(), found).encode())


def in_readme(text: str, found: Sequence[Result]) -> str:
    """Return README.md's text with the table of the headline figures between its marks."""
    table = "\n".join(headlines(found))
    return README_TABLE.sub(lambda marks: f"{marks[1]}{table}\n{marks[2]}", text)


def headlines(found: Sequence[Result]) -> Iterator[str]:
    """Yield README.md's table."""
    yield "| figure | what | verdict |\n|---|---|---|"
    for one in chosen(found):
        name = one["id"]
        yield f"| [{name}](docs/papers/{paper_of(one)}.md#{name}) | {one['title']} | {summary(one)} |"


def chosen(found: Sequence[Result]) -> list[Result]:
    """Return the headline figures, the most telling first."""
    return sorted((one for one in found if one["id"] in HEADLINES), key=lambda one: HEADLINES.index(one["id"]))


def paper_of(one: Result) -> str:
    """Return the paper that a figure is of, as its page is called."""
    return str(one["id"]).rpartition("-")[0]


def overview(found: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the table of all figures."""
    first = chosen(found)
    yield "# All figures\n\n`jobs/papers.sh` makes this page. A figure is reproduced if all its checks hold, but for"
    yield "fitted ones. Long texts are cut, and whole on the papers' pages. [Terms](../papers.md#terms) are explained."
    yield ""
    yield f"{counted(found)} Their measurements take {minutes(found):.0f} minutes, models and pictures some more.\n"
    yield from far_off(found)
    others = [one for one in found if one not in first]
    for title, rows in (("The ten most informative figures", first), ("The others", others)):
        yield f"## {title}\n\n| figure | paper | measured here | modelled | verdict |\n|---|---|---|---|---|"
        for one in rows:
            name, texts = one["id"], [cut(one[key], WIDTH) for key in ("paper", "measured", "modelled")]
            yield f"| [{name}]({paper_of(one)}.md#{name}): {one['title']} | {' | '.join(texts)} | {summary(one)} |"
        yield ""


def minutes(found: Sequence[Result]) -> float:
    """Return the minutes that all measurements took."""
    return float(sum(one["kept"].get("seconds", 0) for one in found)) / 60


def far_off(found: Sequence[Result]) -> Iterator[str]:
    """Yield which figures' simulations are farther from what was measured than their checks allow."""
    names = [
        one["id"]
        for one in found
        if any(SIMULATED.search(check["what"]) and check["verdict"] == NOT_REPRODUCED for check in one["checks"])
    ]
    if names:
        yield "A simulation is held against the same measurement here, mostly within 10 %. It misses in:"
        yield f"{', '.join(names)}.\n"


def paper_page(paper: str, found: Sequence[Result]) -> list[str]:
    """Return a paper's page; no lines where none of its figures was tried."""
    if not found:
        return []
    return [*page(TITLES[paper], found), *(rest(paper) if paper in IMPOSSIBLE else [])]


def page(title: str, found: Sequence[Result]) -> Iterator[str]:
    """Yield a page's lines."""
    yield f"# {title}" if title == TITLES[BEYOND] else f"# {title}, reproduced"
    yield "\n`jobs/papers.sh` makes this page. A value is measured on the machine that is named, or modelled at the"
    yield "paper's size. Inputs are stated in the paper, derived from it, measured here, assumed, or fitted. A check"
    yield "that holds is no evidence where an input was fitted on what it checks, or where the model has no choice, as"
    yield "in arithmetic on the paper's own numbers. Such a check is not counted, unless it is missed.\n"
    yield "[Terms](../papers.md#terms) such as HR, CB-8, GS, SB, sgemm and other work are explained.\n"
    yield from disturbed(found)
    yield "| figure | what | paper | measured here | when | modelled | |"
    yield "|---|---|---|---|---|---|---|"
    for one in found:
        yield f"| [{one['id']}](#{one['id']}) | {one['title']} | {one['paper']} | {one['measured']} | " + (
            f"{under(one) or '-'} | {one['modelled']} | {summary(one)} |"
        )
    for one in found:
        yield from section(one)


def disturbed(found: Sequence[Result]) -> Iterator[str]:
    """Yield a warning if other work used a core, or may have, while figures were measured."""
    names = [one["id"] for one in found if one["kept"].get("measured") and one["kept"].get("busy", QUIET + 1) > QUIET]
    if names:
        yield f"Measured while other work ran, which distorts times: {', '.join(names)}.\n"


def rest(paper: str) -> Iterator[str]:
    """Yield the section of figures without a module."""
    yield "\n## Not reproduced here\n\n| figure | why |\n|---|---|"
    yield from (f"| {what} | {why} |" for what, why in IMPOSSIBLE[paper].items())


def section(one: Result) -> Iterator[str]:
    """Yield a figure's section."""
    yield f"\n## {one['id']}\n"
    yield f"{one['title']}. {one['source']}.\n"
    yield f"![{one['title']}]({one['id']}.png)\n"
    if one.get("table"):
        yield from one["table"]
        yield ""
    kept = one["kept"]
    if "why" in kept:
        yield f"Not measured: {kept['why']}.\n"
    elif kept["measured"]:
        yield f"Measured: {under(one)}; {kept['machine']}.\n"
    yield "| check | found | expected | |"
    yield "|---|---|---|---|"
    for check in one["checks"]:
        value = "-" if check["found"] is None else f"{check['found']:.4g}"
        bounds = check["why"] if check["found"] is None else expected(check)
        yield f"| {check['what']} | {value} | {bounds} | {verdict(check)} |"
    if one["inputs"]:
        yield "\n| input | value | unit | origin | where |"
        yield "|---|---|---|---|---|"
        for given in one["inputs"]:
            yield f"| {given['name']} | {given['value']:.6g} | {given['unit']} | {given['origin']} | {given['where']} |"
    if one["unexplained"]:
        yield "\nUnexplained:\n"
        yield from (f"- {text}" for text in one["unexplained"])
