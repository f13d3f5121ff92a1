"""The command scaffe, and python -m scaffe."""

import gc
import sys

from scaffe.training.signals import hold

HOLDING = "train", "retry"  # commands that do what a signal asks once they have started


def main() -> int:
    """Run the command of this process; return its exit code, as scaffe.cli does."""
    if sys.argv[1:2] and sys.argv[1] in HOLDING:
        hold()
    gc.disable()  # modules are no garbage: to look for some in them took a fifth of the time of a start and an end
    from scaffe import cli, commands  # here: it takes a while, in which a signal would end the process

    commands.modules(sys.argv[1:])
    gc.freeze()
    gc.enable()
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
