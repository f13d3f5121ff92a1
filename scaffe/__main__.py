"""The command scaffe, and python -m scaffe."""

import sys

from scaffe.training.signals import hold

HOLDING = "train", "retry"  # commands that do what a signal asks once they have started


def main() -> int:
    """Run the command of this process; return its exit code, as scaffe.cli does."""
    if sys.argv[1:2] and sys.argv[1] in HOLDING:
        hold()
    from scaffe.cli import main as run  # takes a second, in which a signal would end the process

    return run()


if __name__ == "__main__":
    sys.exit(main())
