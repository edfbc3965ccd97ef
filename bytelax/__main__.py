"""`python -m bytelax` is the command `bytelax`."""

import sys

from bytelax.cli import main

if __name__ == "__main__":
    sys.exit(main())
