"""Peak memory of a net's training iterations in scaffe and in PyTorch, each measured in a process of its own.

    python jobs/bench/memory.py ours NET BATCH ENGINE NUMBERS PHASE | save NET BATCH FILE |
        theirs FILE nchw|channels_last NUMBERS PHASE

engine.py --memory starts these processes. A process that has run one net can't measure the peak of the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from iteration import build, forward, ours, theirs, theirs_forward, zoo

import scaffe

ITERATIONS = 3
USAGE = (
    "usage: memory.py ours NET BATCH ENGINE NUMBERS PHASE | save NET BATCH FILE | "
    "theirs FILE nchw|channels_last NUMBERS PHASE"
)


def peaks(name: str, batch: int, engine: str, numbers: str, phase: str, torch: bool) -> list[float]:
    """Return the peak resident memory (MiB) of scaffe and, if `torch`, of PyTorch in its smaller memory format."""
    found = [_run("ours", name, str(batch), engine, numbers, phase)]
    if torch:
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "net.pt")
            _run("save", name, str(batch), file)
            layouts = "nchw", "channels_last"
            found.append(min(_run("theirs", file, layout, numbers, phase) for layout in layouts))
    return found


def _run(*arguments: str) -> float:
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def peak() -> float:
    """Return the peak resident memory of this process (MiB); that of getrusage includes its parent before exec."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmHWM"].split()[0]) / 1024


def run_ours(name: str, batch: str, engine: str, numbers: str, phase: str) -> None:
    """Run scaffe's iterations."""
    net = build(zoo(name, int(batch)), engine, numbers=numbers, phase=getattr(scaffe, phase))
    iteration = ours(net) if phase == "TRAIN" else forward(net)
    for _ in range(ITERATIONS):
        iteration()


def save(name: str, batch: str, file: str) -> None:
    """Write PyTorch's net and its batch to a file."""
    import torch
    import torch_net

    net = build(zoo(name, int(batch)), "reference")
    torch.save((torch_net.TorchNet(net), *torch_net.batch(net)), file)


def run_theirs(file: str, layout: str, numbers: str, phase: str) -> None:
    """Run PyTorch's iterations on the net of a file that `save` wrote."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    made = theirs if phase == "TRAIN" else theirs_forward
    iteration = made(*torch.load(file, weights_only=False), layout == "channels_last", numbers)
    for _ in range(ITERATIONS):
        iteration()


def main(arguments: list[str]) -> None:
    """Run what the first argument names, and print the peak."""
    runs = {"ours": (run_ours, 6), "save": (save, 4), "theirs": (run_theirs, 5)}
    if arguments in (["-h"], ["--help"]):
        print(USAGE)
        return
    run, count = runs.get(arguments[0], (None, 0)) if arguments else (None, 0)
    if run is None or len(arguments) != count:
        raise SystemExit(USAGE)
    run(*arguments[1:])
    print(peak())


if __name__ == "__main__":
    main(sys.argv[1:])
