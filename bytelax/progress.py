"""Progress of long work: a bar on a terminal, or a function that is called with what is done."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator

# Whether to show a bar on a terminal; or a function of the number of bytes that are newly done.
Progress = bool | Callable[[int], object]


@contextlib.contextmanager
def shown(
    progress: Progress, name: str, total: int | None
) -> Iterator[Callable[[int], object] | None]:
    """Yields the function to call with the number of bytes that are newly done, or None.

    Args:
      progress: a function of the caller; or whether to show a bar, if standard error is a terminal.
      name: name of the bar.
      total: number of bytes in all; None if it is not known.

    Raises:
      ValueError: `progress` is neither.
    """
    if callable(progress):
        yield progress
        return
    if not isinstance(progress, bool):
        raise ValueError(f"progress is whether to show a bar, or a function, got {progress!r}")
    if progress:
        import rich.console
        import rich.progress

        console = rich.console.Console(stderr=True)
        if console.is_terminal:
            with rich.progress.Progress(
                console=console,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),  # printed text goes above the bar
            ) as bars:
                yield functools.partial(bars.advance, bars.add_task(name, total=total))
            return
    yield None
