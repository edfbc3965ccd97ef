"""The command `bytelax`, which Ctrl-C ends in one line from its first moment on.

Importing JAX takes seconds, and an interrupt in between is a traceback where it is not lost. This
module is therefore apart from the package, and imports nothing before it has set the handler.
"""

import os
import signal
import sys


def main() -> int:
    signal.signal(signal.SIGINT, _leave)
    from bytelax import cli

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return cli.main()
    except KeyboardInterrupt:  # just before or behind what `main` does about it
        _leave()
    finally:
        signal.signal(signal.SIGINT, _leave)  # what runs as Python exits shows tracebacks too


def _leave(*_):
    os.write(2, b"bytelax: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
