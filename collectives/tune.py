"""`python -m collectives.tune`: measure what is best on this machine; see `collectives.tuning.measuring`."""

import sys

from collectives.tuning.measuring import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
