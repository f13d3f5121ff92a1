"""`python -m collectives.schedules`: print the table of algorithms that the documentation holds."""

import sys

from collectives.command import run
from collectives.schedules.registry import table


def main() -> int:
    """Print the table, in Markdown."""
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
