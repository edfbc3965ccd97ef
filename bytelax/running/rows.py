"""The rows of a batch, which are refilled with further prompts as they end."""

from collections.abc import Iterable, Iterator

import numpy as np

from bytelax.running.engine import Engine
from bytelax.running.requests import Request
from bytelax.running.results import Result


class Queue:
    """Yields requests, up to the first bad one.

    Its error is kept in `error`, so that the rows before it can be finished first.
    """

    def __init__(self, asked: Iterable[Request]):
        self._asked = iter(asked)
        self.error: Exception | None = None

    def take(self) -> Request | None:
        """Returns the next request, or None if there is none."""
        try:
            return next(self._asked, None)
        except Exception as error:  # including errors raised by the caller's iterable
            self.error = error
        return None


def in_rows(
    engine: Engine, queue: Queue, batch: int, *, rounds: int | None = None
) -> Iterator[Result]:
    """Runs requests in a batch whose rows are refilled, and yields each result when it ends.

    With `rounds`, it also yields the results so far of all rows after every so many rounds.
    """
    each = batch // engine.parts  # rows per batch shard of the mesh
    together = max(1, each // 8)  # prompts that a shard prefills at once
    slots = range(engine.parts * together)
    waiting = queue.take()
    while waiting is not None:
        capacity = engine.capacity(waiting)
        rows: dict[int, int] = {}  # index of the prompt in each occupied row
        decoding = None
        while True:
            while waiting is not None and engine.fits(waiting, capacity):
                taken: list[Request | None] = [None for _ in slots]
                where = np.full(len(slots), each, np.int32)  # row within the shard; `each` drops it
                for slot in slots:
                    own = range(slot // together * each, (slot // together + 1) * each)
                    free = [row for row in own if row not in rows]
                    if free and waiting is not None and engine.fits(waiting, capacity):
                        taken[slot], rows[free[0]] = waiting, waiting.index
                        where[slot] = free[0] - own.start
                        waiting = queue.take()
                if not any(taken):
                    break
                new = engine.start(taken, capacity=capacity)
                if decoding is None and len(slots) == batch:  # the rows not taken have ended
                    decoding = new
                    continue
                decoding = engine.idle(new, each) if decoding is None else decoding
                decoding = engine.insert(decoding, new, where)
            if not rows:
                break  # the next prompt needs larger buffers, or is too long for any
            assert decoding is not None  # it holds the rows
            decoding = engine.advance(decoding, ended=together, rounds=rounds)
            ended = engine.ended(decoding)
            finished = {row: index for row, index in rows.items() if ended[row]}
            found = engine.results(decoding, finished if rounds is None else rows)
            rows = {row: index for row, index in rows.items() if not ended[row]}
            yield from found.values()
    if queue.error is not None:
        raise queue.error
