"""python -m scaffe.pycaffe [--allow-python-layers] script.py ARGS...: run a program that says `import caffe`.

In place of a script, as python has it: `-m module`, `-c code`, or `-` for the standard input.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
import time
from collections.abc import Sequence
from types import ModuleType, TracebackType

from scaffe.parallel.world import launcher_rank, opened_world
from scaffe.pycaffe.names import install

USAGE = "python -m scaffe.pycaffe [--allow-python-layers] (script.py | -m module | -c code | -) [ARGS...]"
ALLOW = "--allow-python-layers"
GRACE = 2  # seconds


def main(given: Sequence[str]) -> int:
    """Run the program that the arguments name; return the exit code where it does not exit itself."""
    allow = given[:1] == [ALLOW]
    args = list(given[allow:])
    if args[:1] in (["-h"], ["--help"]):
        print(f"usage: {USAGE}")
        return 0
    if wrong := _wrong(args):
        if launcher_rank() == 0:
            print(f"scaffe.pycaffe: {wrong}; usage: {USAGE}", file=sys.stderr)
        else:
            time.sleep(GRACE)  # the launcher ends all ranks once one has ended: not before the first has said why
        return 2
    sys.path[0] = _folder(args[0])
    install(allow, replace=True)
    try:
        _run(args)
    except SystemExit as error:
        _abort_job(error.code)
        raise
    except KeyboardInterrupt as error:
        raise error.with_traceback(_of_program(error.__traceback__)) from error.__cause__
    except BaseException as error:
        error.__traceback__ = _of_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _wrong(args: Sequence[str]) -> str:
    """Return what is wrong with the arguments, "" where they name a program."""
    if not args:
        return "which program?"
    if args[0] in ("-m", "-c"):
        return "" if args[1:] else f"{args[0]} needs an argument"
    if args[0].startswith("-") and args[0] != "-":
        return f"unknown option {args[0]}"
    return "" if args[0] == "-" or os.path.exists(args[0]) else f"no file {args[0]}"


def _folder(program: str) -> str:
    """Return what python has as sys.path[0] for a program: a script's folder."""
    if program == "-m":
        return os.getcwd()
    return "" if program in ("-", "-c") else os.path.dirname(os.path.realpath(program))


def _run(args: Sequence[str]) -> None:
    """Run the program as the module __main__, with its arguments in sys.argv."""
    if args[0] == "-m":
        sys.argv = list(args[1:])
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = [args[0], *args[2 if args[0] == "-c" else 1 :]]
    if args[0] == "-c":
        _run_text(args[1], "<string>")
    elif args[0] == "-":
        _run_text(sys.stdin.read(), "<stdin>")
    else:
        runpy.run_path(args[0], run_name="__main__")


def _run_text(text: str, name: str) -> None:
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, name, "exec"), vars(module))


def _abort_job(code: object) -> None:
    """End all ranks where one exits with an error after MPI was initialised, since others may wait for it."""
    world = opened_world()
    if not code or world is None or world.size == 1:
        return
    if not isinstance(code, int):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    world.abort(code if isinstance(code, int) else 1)


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this module and of runpy, which python's own would not have."""
    while trace and (trace.tb_frame.f_code.co_filename == __file__ or trace.tb_frame.f_globals["__name__"] == "runpy"):
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    gc.freeze()  # modules are no garbage: a search passes over them at the end too
    sys.exit(main(sys.argv[1:]))
