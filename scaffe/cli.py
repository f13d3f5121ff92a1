"""The command line: scaffe train, test and the tools around them; Caffe's spelling of its flags works too."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from scaffe import __version__, commands
from scaffe.commands.gflags import Parser
from scaffe.devices.threads import explain
from scaffe.monitor import log as logs
from scaffe.monitor.log import one_line
from scaffe.parallel.world import USER_ERRORS, launcher_rank


def parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of the whole command line, or of the command that these words begin with alone."""
    top = Parser(prog="scaffe", description="Train Caffe nets over MPI.")
    top.flag("version", action="version", version=f"scaffe {__version__}", help="print the version")
    for module in commands.modules(words):
        module.add(top)
    return top


def _log_ignored(flags: Sequence[str]) -> None:
    """Log the flags of Caffe that have no meaning here."""
    if flags:
        with logs.started(launcher_rank()):
            logs.log.info("Ignored, since it says nothing here: %s", ", ".join(flags))


def _drop_output() -> None:
    """Let what is still to be flushed go nowhere."""
    if sys.stdout is not None:  # closed, as by >&-
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 2 for a user's error, 75 to be requeued, 130 after ^C, 1 for a defect.

    141, as in a shell, if the output's reader has closed it.
    """
    words = sys.argv[1:] if argv is None else argv
    arguments = parser(words).parse_args(words)
    _log_ignored(getattr(arguments, "ignored", None) or [])
    try:
        code: int = arguments.run(arguments)
        if sys.stdout is not None:  # closed, as by >&-
            sys.stdout.flush()
        return code
    except USER_ERRORS as error:
        if launcher_rank() == 0:
            print(f"scaffe: {one_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the output's reader, such as head, has closed it
        _drop_output()
        return 141
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _drop_output()
        print("scaffe: the output can't be written: no space left on device", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if not (text := explain(error)):
            raise
        print(f"scaffe: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
