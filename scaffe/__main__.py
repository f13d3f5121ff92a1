"""python -m scaffe: the same as the command scaffe."""

import sys

from scaffe.cli import main

sys.exit(main())
