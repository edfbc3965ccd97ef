"""Entry point of the command `bytelax`, which Ctrl-C ends with a one-line message at any time.

Importing JAX takes seconds, and an interrupt during the import would show a traceback or be lost.
This module is therefore outside the package, and sets its signal handler before further imports.
"""

import os
import signal
import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    signal.signal(signal.SIGINT, _leave)
    from bytelax import cli

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return cli.main()
    except KeyboardInterrupt:  # raised outside of the handler in `cli.main`
        _leave()
    finally:
        signal.signal(signal.SIGINT, _leave)  # an interrupt at exit would show a traceback


def _leave(*_):
    os.write(2, b"bytelax: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
