"""Entry point of the command `bytelax`, which Ctrl-C ends with a one-line message at any time.

An interrupt while JAX is imported would show a traceback, or be lost in one of its callbacks. This
module is therefore outside the package, and until the command is imported an interrupt ends the
process at once. From then on it is a KeyboardInterrupt, so that commands can clean up.
"""

import os
import signal
import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    signal.signal(signal.SIGINT, _leave)
    from bytelax import cli

    try:
        return cli.main(when_imported=_raise_interrupts)
    except KeyboardInterrupt:  # raised outside of the handler in `cli.main`
        _leave()
    finally:
        signal.signal(signal.SIGINT, _leave)  # an interrupt at exit would show a traceback


def _raise_interrupts():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_):
    os.write(2, b"bytelax: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
