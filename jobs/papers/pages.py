"""Pages: docs/papers/PAPER.md from the results of its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from left_out import IMPOSSIBLE

from scaffe.atomic import write_atomically
from scaffe.papers import Result, expected, results, summary, under, verdict

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


def write(folder: Path, known: Sequence[str]) -> None:
    """Write a page for each paper with results of the `known` figures, into `folder`."""
    found = [one for one in results() if one["id"] in known]
    for paper, title in TITLES.items():
        mine = [one for one in found if one["id"].rpartition("-")[0] == paper]
        if mine:
            lines = [*page(title, mine), *(rest(paper) if paper in IMPOSSIBLE else [])]
            write_atomically(folder / f"{paper}.md", ("\n".join(lines) + "\n").encode())


def page(title: str, found: Sequence[Result]) -> Iterator[str]:
    """Yield a page's lines."""
    yield f"# {title}" if title == TITLES[BEYOND] else f"# {title}, reproduced"
    yield "\n`jobs/papers.sh` makes this page. A value is measured on the machine that is named, or modelled at the"
    yield "paper's size. Inputs are stated in the paper, derived from it, measured here, assumed, or fitted. A check"
    yield "that holds because an input was fitted on it is no evidence, and is not counted.\n"
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
