"""Reads text files as documents `BOS bytes EOS`, packed into one buffer of ids per source."""

import codecs
import functools
import glob
import gzip
import hashlib
import itertools
import json
import os
import re
import string
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt16

from bytelax import vocab
from bytelax.training.configs import DataError, Source

SUFFIXES = (".txt", ".py", ".jsonl", ".tsv")
_WIDEST = 10_000  # largest width, in characters, that a template may pad a field to
_TAIL = 16_384  # ids; fewer are too few to validate on
_KINDS = ".txt, .py, .jsonl or .tsv, plain or .gz"


class Documents(NamedTuple):
    """Documents in one buffer: document d is `ids[starts[d]:starts[d + 1]]`, with BOS and EOS."""

    ids: UInt16[np.ndarray, " T"]
    starts: Int64[np.ndarray, "D+1"]

    @property
    def bytes(self) -> int:
        """Number of bytes, without BOS and EOS."""
        return len(self.ids) - 2 * (len(self.starts) - 1)


def pack(texts: Sequence[bytes]) -> Documents:
    """Packs texts into one buffer of documents."""
    starts = np.cumsum([0, *(len(text) + 2 for text in texts)], dtype=np.int64)
    buffer = b"".join(b" %b " % text for text in texts)
    ids = np.frombuffer(buffer, np.uint8).astype(np.uint16) + np.uint16(vocab.OFFSET)
    ids[starts[:-1]] = vocab.BOS
    ids[starts[1:] - 1] = vocab.EOS
    return Documents(ids, starts)


@functools.lru_cache(maxsize=64)
def load(source: Source, valid_fraction: float) -> tuple[Documents, Documents]:
    """Loads the training and the validation documents of a source.

    If `source.valid` is empty, a document is held out if the hash of its bytes (for a table, of its
    line) falls into a share `valid_fraction` of all hashes. The split therefore does not depend on
    other files, on other sources or on the template, and copies of a text are in the same split.
    If no document is held out by that, or every one, because there are too few, the tail of the
    text is: a share `valid_fraction` or 16 KB, whichever is more, but at most a tenth.
    Results are cached, so each source is read once per process.
    """
    parts = list(by_file(source, valid_fraction))
    train = _join(train for _, train, _ in parts)
    held_out = _join(held for _, _, held in parts)
    if not valid_fraction or source.valid or (train.ids.size and held_out.ids.size):
        return train, held_out
    text = _join([train, held_out])  # one of which is empty
    tail = min(max(int(valid_fraction * text.ids.size), _TAIL), text.ids.size // 10)
    return _without_tail(text, tail) if tail else (text, pack([]))


def by_file(source: Source, valid_fraction: float) -> Iterator[tuple[str, Documents, Documents]]:
    """Iterates over the files of a source: the name, the documents to train on, those held out."""
    cut = re.compile(source.separator.encode(), re.MULTILINE)
    held = {os.path.realpath(file): file for file in files(source.valid)} if source.valid else {}
    fraction = 0.0 if source.valid else valid_fraction
    for file in files(source.path):
        if os.path.realpath(file) not in held:
            yield file, *_split(file, cut=cut, template=source.template, fraction=fraction)
    for file in held.values():
        inside, outside = _split(file, cut=cut, template=source.template, fraction=0.0)
        yield file, outside, inside


def _without_tail(texts: Documents, tail: int) -> tuple[Documents, Documents]:
    """Splits off about the last `tail` ids. A document at the cut is divided at a line's end."""
    cut = texts.ids.size - tail
    index = int(np.searchsorted(texts.starts, cut, side="right")) - 1
    begin, end = texts.starts[index : index + 2]
    divided = (texts.ids[begin + 1 : end - 1] - vocab.OFFSET).astype(np.uint8).tobytes()
    place = max(int(cut - begin) - 1, 0)
    place = divided.rfind(b"\n", 0, place) + 1 or place
    first, second = (pack([part] if part else []) for part in (divided[:place], divided[place:]))
    before = Documents(texts.ids[:begin], texts.starts[: index + 1])
    behind = Documents(texts.ids[end:], texts.starts[index + 1 :] - end)
    return _join([before, first]), _join([second, behind])


def files(path: str) -> list[str]:
    """Lists the files that a path matches: a file, a directory or a glob, in a fixed order."""
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        inside = glob.glob(os.path.join(glob.escape(path), "**", "*"), recursive=True)
        found = sorted(file for file in inside if _suffix(file) in SUFFIXES)
        if not found:
            raise DataError(f"{path}: no file in this directory is {_KINDS}")
        return found
    if os.path.exists(path):
        found = [path]
    else:
        found = sorted(filter(os.path.isfile, glob.glob(path, recursive=True)))
    if not found:
        raise DataError(f"{path}: no such file, and no file matches it as a pattern")
    for file in found:
        if _suffix(file) not in SUFFIXES:
            raise DataError(f"{file}: unknown kind of file; it must be {_KINDS}")
    return found


def _suffix(file: str) -> str:
    return os.path.splitext(file.removesuffix(".gz"))[1]


def _split(
    file: str, *, cut: re.Pattern[bytes], template: str, fraction: float
) -> tuple[Documents, Documents]:
    """Packs the documents of a file, separately for training and for validation."""
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for record, text in _documents(file, cut, template):
        if text.strip():
            sides[_is_held_out(record, fraction)].append(text)
    return pack(sides[False]), pack(sides[True])


def _is_held_out(record: bytes, fraction: float) -> bool:
    if not fraction:
        return False
    digest = hashlib.blake2b(record, digest_size=8).digest()
    return int.from_bytes(digest, "little") < fraction * 2**64


def _join(parts: Iterable[Documents]) -> Documents:
    parts = [pack([]), *parts]
    lengths = np.concatenate([np.diff(part.starts) for part in parts])
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(np.concatenate([part.ids for part in parts]), starts)


def _documents(file: str, cut: re.Pattern[bytes], template: str) -> Iterator[tuple[bytes, bytes]]:
    """Iterates over the documents of a file: the record that decides the split, and the text."""
    content = _content(file)
    if _suffix(file) == ".tsv":
        content = content.removeprefix(codecs.BOM_UTF8)  # else it belongs to the first column
    match _suffix(file):
        case ".jsonl":
            return _rows(file, content, _of_json(template or "{text}"))
        case ".tsv" if template:
            return _rows(file, content, _of_columns(template))
        case ".tsv":
            return ((line, line) for line in content.splitlines())
        case ".txt" if cut.pattern:
            return ((text, text) for text in _pieces(content, cut))
        case _:
            return iter([(content, content)])


def _content(file: str) -> bytes:
    try:
        with open(file, "rb") as handle:
            content = handle.read()
        if not file.endswith(".gz"):
            return content
        if not content:
            raise EOFError("an empty file is no gzip")
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{file}: cannot be read: {reason}") from None


def _pieces(content: bytes, cut: re.Pattern[bytes]) -> Iterator[bytes]:
    cuts = itertools.chain.from_iterable(match.span() for match in cut.finditer(content))
    bounds = [0, *cuts, len(content)]
    return (content[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))


def _rows(file: str, content: bytes, text: Callable[[bytes], str]) -> Iterator[tuple[bytes, bytes]]:
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield line, text(line).encode()
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            raise DataError(f"{file}:{number}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    match error:
        case json.JSONDecodeError() | RecursionError():
            return f"invalid JSON: {error}"
        case UnicodeEncodeError(object=text, start=at):
            return f"{text[at]!r} is half a character, a lone surrogate; repair or drop the line"
        case UnicodeError():
            return f"invalid UTF-8: {error}"
        case KeyError():
            return f"no field {error}"
        case _:
            return str(error)


def _of_json(template: str) -> Callable[[bytes], str]:
    formatter, template = _Template(), _with_controls(template)

    def text(line: bytes) -> str:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError("the line is no JSON object")
        return formatter.vformat(template, (), record)

    return text


def _of_columns(template: str) -> Callable[[bytes], str]:
    formatter, template = _Template(), _with_controls(template)
    return lambda line: formatter.vformat(template, line.decode().split("\t"), {})


def _with_controls(template: str) -> str:
    r"""Replaces `\n` and `\t`, as typed on a command line, by the characters they denote."""
    return template.replace(r"\n", "\n").replace(r"\t", "\t")


class _Template(string.Formatter):
    """Python's string formatter, restricted to text and numbers and to bounded widths."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if isinstance(key, int) and key >= len(args):
            raise ValueError(f"no column {key}; the columns are counted from 0")
        return super().get_value(key, args, kwargs)

    def format_field(self, value: Any, format_spec: str) -> str:
        if not isinstance(value, str | int | float):
            raise ValueError(f"a field is {type(value).__name__}, not text")
        if any(int(number) > _WIDEST for number in re.findall(r"\d+", format_spec)):
            raise ValueError(f"{format_spec!r} asks for more than {_WIDEST} characters")
        return super().format_field(value, format_spec)
