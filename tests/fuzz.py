"""Feed damaged files of every kind to what reads them: `python tests/fuzz.py --seconds 600 --seed 1 [--kind KIND]`.

Each case is a good file with a few mutations, read in a child process that is one of ours: an error of scaffe's own
trees is right; any other exception, a process that dies, more than LIMIT_S seconds or LIMIT_BYTES more memory is a
finding. Findings' files stay in --keep, named by kind, seed and number; the exit status is 1 if there are any.
Inner pages of an LMDB are left whole: LMDB itself ends the process on some that are damaged.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).with_name("support"))]

import fuzz_seeds  # noqa: E402
from patience import patient  # noqa: E402

from collectives import CollectiveError  # noqa: E402
from readers import ReaderError  # noqa: E402
from scaffe.errors import ScaffeError  # noqa: E402

RIGHT = (ScaffeError, ReaderError, CollectiveError)
LIMIT_S = 20
LIMIT_BYTES = 3 << 30
BATCH = 50  # cases of a child
NUMBERS = [b"-1", b"0", b"1", b"4294967295", b"2147483647", b"9223372036854775807", b"nan", b"inf", b"1e38", b"0.5",
           b'"\\000"', b'""', b"[]", b"null", b"{}", b"true"]  # fmt: skip
EXTREMES = [
    b"\xff" * 4,
    b"\x00" * 4,
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 10,
    b"\n\x1b[2J",
]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return a file's content with one to four mutations."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        draw.choice(MUTATIONS)(changed, draw)
    return bytes(changed)


def flip(content: bytearray, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 8)):
        if content:
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def cut(content: bytearray, draw: random.Random) -> None:
    del content[draw.randint(0, len(content)) :]


def splice(content: bytearray, draw: random.Random) -> None:
    """Copy a part over, or into, another place."""
    a, b = draw.randint(0, len(content)), draw.randint(0, len(content))
    part = content[a : a + draw.choice([1, 8, 64, 512])]
    content[b : b + draw.choice([0, len(part)])] = part


def insert(content: bytearray, draw: random.Random) -> None:
    at = draw.randint(0, len(content))
    extreme = draw.choice(EXTREMES)
    content[at : at + draw.choice([0, len(extreme)])] = extreme


def words(content: bytearray, draw: random.Random) -> None:
    """Replace a word of a text, or exchange two: a field for a field, a number for an extreme one."""
    found = content.split(b" ")
    i, j = draw.randrange(len(found)), draw.randrange(len(found))
    found[i], found[j] = (found[j], found[i]) if draw.random() < 0.5 else (bytearray(draw.choice(NUMBERS)), found[j])
    content[:] = b" ".join(found)


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [flip, flip, cut, splice, insert, words, words]


def child(kind: fuzz_seeds.Kind, seed: int, first: int, progress: int) -> None:
    """Run BATCH cases; tell the parent of each before it begins, and of what is wrong with it."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES,) * 2)
    for number in range(first, first + BATCH):
        os.write(progress, b"%d\n" % number)
        draw = random.Random(f"{kind.name} {seed} {number}")
        kind.path.write_bytes(mutated(kind.good, draw))
        try:
            kind.read()
        except RIGHT as error:
            if not str(error).strip():
                os.write(progress, b"an error without words: %s\n" % repr(error).encode())
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})".split())
            os.write(progress, ascii(text).encode() + b"\n")


def run(kind: fuzz_seeds.Kind, seed: int, first: int) -> list[tuple[int, str]]:
    """Run a child; return its findings, the number of a case and what is wrong with it."""
    there, here = os.pipe()
    sys.stdout.flush()
    if not (pid := os.fork()):
        os.close(there)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        signal.alarm(0)
        child(kind, seed, first, here)
        os._exit(0)
    os.close(here)
    findings, number, text = [], first, b""
    while ready(there) and (piece := os.read(there, 1 << 16)):
        text += piece
        *lines, text = text.split(b"\n")
        for line in lines:
            if line.isdigit():
                number = int(line)
            else:
                findings.append((number, line.decode()))
    stuck = not ended(pid)
    if stuck:
        os.kill(pid, signal.SIGKILL)
        findings.append((number, f"no end within {LIMIT_S} s"))
    _, status = os.waitpid(pid, 0)
    if not stuck and status:
        findings.append((number, f"the process died: {os.waitstatus_to_exitcode(status)}"))
    os.close(there)
    return findings


def ready(pipe: int) -> bool:
    """Say whether the child has written, or ended, within the limit."""
    import select

    return patient(lambda seconds: bool(select.select([pipe], [], [], seconds)[0]), LIMIT_S)


def ended(pid: int) -> bool:
    """Say whether a process has ended, without taking its status; one that closed its pipe is about to."""

    def look(seconds: float) -> bool:
        time.sleep(0.01)
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    return patient(look, 5)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=0, help="of each kind; else as many as the seconds allow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="", help="only kinds with this in their name")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for inputs that went wrong")
    options = parser.parse_args(argv)
    keep = options.keep.resolve()
    home = Path(tempfile.mkdtemp(prefix="scaffe-fuzz-"))
    start, cases, wrong, told = time.monotonic(), 0, 0, set()
    try:
        os.chdir(home)
        kinds = [kind for kind in fuzz_seeds.make(home) if options.kind in kind.name]
        first = 0
        while (cases < options.cases * len(kinds)) if options.cases else (time.monotonic() - start < options.seconds):
            for kind in kinds:
                for number, text in run(kind, options.seed, first):
                    wrong += 1
                    if (kind.name, text) in told:
                        continue
                    told.add((kind.name, text))
                    keep.mkdir(parents=True, exist_ok=True)
                    saved = keep / f"{kind.name}-{options.seed}-{number}{kind.path.suffix}"
                    saved.write_bytes(mutated(kind.good, random.Random(f"{kind.name} {options.seed} {number}")))
                    print(f"{kind.name}, case {number}: {text}; kept: {saved}", flush=True)
                cases += BATCH
                if not options.cases and time.monotonic() - start > options.seconds:
                    break
            first += BATCH
    finally:
        os.chdir("/")
        shutil.rmtree(home, ignore_errors=True)
    print(
        f"{cases} cases of {len(kinds)} kinds in {time.monotonic() - start:.0f} s, seed {options.seed}: {wrong} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
