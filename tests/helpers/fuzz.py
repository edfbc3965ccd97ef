"""Checkpoints with one thing wrong, by the thousand."""

import dataclasses
import itertools
import json
import math
import pathlib
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator

from bytelax import checkpoints
from bytelax.checkpoints import CheckpointError

SECONDS, MEGABYTES = 5, 300  # what one mutation may take, and all of them together
_DEEP = json.loads("[" * 200 + "]" * 200)
VALUES = (
    None, True, False, 0, 1, -1, 2, 3, 5, 4096, 2**31 - 1, 2**31, -(2**40), 10**12, 10**40, 0.5,
    -0.5, 1e-300, 1e300, math.nan, math.inf, -math.inf, "", "x", "16", "NaN", "None", "\ud800", [],
    [1], [[1]], [0, -3, 10**12], ["3", "4"], {}, {"a": 1}, {"layers": 1}, _DEEP,
)  # fmt: skip


@dataclasses.dataclass
class Tally:
    """What became of the mutations."""

    tried: int = 0
    refused: int = 0
    accepted: int = 0
    slowest: float = 0.0


def config_mutations(path: pathlib.Path) -> Iterator[bytes]:
    """The JSON in a file with one value replaced, left out, doubled or renamed."""
    whole = json.loads(path.read_text())
    for place in _places(whole):
        for value in VALUES:
            yield json.dumps(_with(whole, place, value)).encode()
        yield json.dumps(_with(whole, place)).encode()
        if isinstance(place[-1], str):
            named = _with(whole, (*place[:-1], f"{place[-1]}_x"), 1)
            yield json.dumps(_with(named, place)).encode()
    for text in ("", "null", "[]", "5", '"', "[" * 100_000, '{"a":' * 50_000, "\x00", "{}"):
        yield text.encode()
    yield b"\xff\xfe{}"
    yield b'{"x": ' + b"9" * 5000 + b"}"


def header_mutations(path: pathlib.Path) -> Iterator[bytes]:
    """A safetensors file with one thing wrong in its header or its length."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    offsets = ([-64, 0], [0, 0], [64, 0], [0, 2**63], [0], [0, 4, 8], ["0", "4"], [0.0, 4.0])
    shapes = ([-1], [10**30], [2**62, 4, 4], [], [0], [[1]], ["16"], [16.0], [2**31])
    dtypes = ("I8", "BOOL", "F8_E4M3", "F64", "f32", ["F32"], {"F4": 1}, 5)
    for name in sorted(header)[:: max(1, len(header) // 12)]:
        for field, values in (("data_offsets", offsets), ("shape", shapes), ("dtype", dtypes)):
            for value in (*values, *VALUES[::3]):
                yield _file(_with(header, (name, field), value), data)
            yield _file(_with(header, (name, field)), data)
        for value in VALUES:
            yield _file(_with(header, (name,), value), data)
        yield _file(_with(header, (name,)), data)
        own = json.dumps({name: header[name]})[1:]
        yield _framed((json.dumps(header)[:-1] + ", " + own).encode(), data)  # twice
    names = [name for name in header if name != "__metadata__"]
    for one, other in itertools.pairwise(names):
        yield _file(_with(header, (one, "data_offsets"), header[other]["data_offsets"]), data)
    for cut in (0, 1, 7, 8, 9, 8 + length // 2, 8 + length, len(content) // 2, len(content) - 1):
        yield content[:cut]
    yield content + b"\0"
    for claimed in (0, 1, length - 1, length + 1, 2**20, 2**40, 2**64 - 1):
        yield claimed.to_bytes(8, "little") + content[8:]
    for text in (b"[" * 100_000, b'{"a":' * 50_000, b"\xff" * 64, b"{}", b"[]", b"null"):
        yield _framed(text, data)


def random_bytes(path: pathlib.Path, rng: random.Random, *, within: int | None) -> Iterator[bytes]:
    """A file with one to four of its first bytes replaced, without end."""
    content = path.read_bytes()
    while True:
        changed = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(min(len(changed), within or len(changed)))] = rng.randrange(256)
        yield bytes(changed)


def attack(
    model: pathlib.Path,
    file: str,
    contents: Iterator[bytes],
    *,
    tally: Tally,
    read: Callable = checkpoints.read_config,
) -> None:
    """Reads the model with each of the contents in one of its files.

    Fails on an error other than a line of `CheckpointError`, and on what takes too long.
    """
    path = model / file
    whole = path.read_bytes()
    before = _peak()
    try:
        for content in contents:
            path.write_bytes(content)
            begin = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            tally.tried += 1
            try:
                read(model)
                tally.accepted += 1
            except CheckpointError as error:
                tally.refused += 1
                assert "\n" not in str(error) and len(str(error)) < 600, error
            except BaseException as error:
                raise AssertionError(f"{file}: {error!r} from {content[:2000]!r}") from error
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            tally.slowest = max(tally.slowest, time.perf_counter() - begin)
    finally:
        path.write_bytes(whole)
    assert _peak() - before < MEGABYTES, "memory"


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _places(value, prefix=()):
    items = value.items() if isinstance(value, dict) else ()
    for name, inner in items:
        yield (*prefix, name)
        yield from _places(inner, (*prefix, name))


def _with(whole, place, *value):
    """Another value at a place, or none."""
    name, *rest = place
    if rest:
        return whole | {name: _with(whole[name], rest, *value)}
    kept = {key: x for key, x in whole.items() if key != name}
    return kept | {name: value[0]} if value else kept


def _file(header, data):
    return _framed(json.dumps(header).encode(), data)


def _framed(text, data):
    return len(text).to_bytes(8, "little") + text + data
