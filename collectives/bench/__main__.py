"""`python -m collectives.bench`."""

import sys

from collectives.bench import main

if __name__ == "__main__":
    sys.exit(main())
