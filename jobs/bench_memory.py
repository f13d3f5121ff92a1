"""Peak memory of a net's training iterations in scaffe and in PyTorch, each measured in a process of its own.

A part of bench_engine.py, which runs this file once for each rival; a process that has held the one net could not
tell what the other takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

ITERATIONS = 3


def peaks(name: str, batch: int, engine: str, torch: bool) -> list[float]:
    """Return the peak resident memory of scaffe and, if it is there, of PyTorch's better format, MiB."""
    found = [_run("ours", name, str(batch), engine)]
    if torch:
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "net.pt")
            _run("save", name, str(batch), file)
            found.append(min(_run("theirs", file, layout) for layout in ("nchw", "channels_last")))
    return found


def _run(*arguments: str) -> float:
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def peak() -> float:
    """Return this process's peak, MiB; getrusage's would begin with what the process that started it had."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmHWM"].split()[0]) / 1024


def ours(name: str, batch: str, engine: str) -> None:
    """Run scaffe's iterations."""
    import bench_engine

    iteration = bench_engine.ours(bench_engine.build(_param(name, batch), engine))
    for _ in range(ITERATIONS):
        iteration()


def save(name: str, batch: str, file: str) -> None:
    """Write PyTorch's net and its batch to a file."""
    import bench_engine
    import torch
    import torch_net

    net = bench_engine.build(_param(name, batch), "reference")
    torch.save((torch_net.TorchNet(net), *torch_net.batch(net)), file)


def theirs(file: str, layout: str) -> None:
    """Run PyTorch's iterations on the net of a file that `save` wrote."""
    import bench_engine
    import torch
    import torch_net

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    fields = {"lr": bench_engine.RATE, "momentum": bench_engine.MOMENTUM, "weight_decay": bench_engine.DECAY}
    model, x, y = torch.load(file, weights_only=False)
    iteration = torch_net.training(model, x, y, layout == "channels_last", **fields)
    for _ in range(ITERATIONS):
        iteration()


def _param(name: str, batch: str):
    from scaffe import models

    return models.get(name).train_val(batch=int(batch), data="input")


if __name__ == "__main__":
    {"ours": ours, "save": save, "theirs": theirs}[sys.argv[1]](*sys.argv[2:])
    print(peak())
