"""`python -m collectives.model`."""

import sys

from collectives.model import main

if __name__ == "__main__":
    sys.exit(main())
