"""Sources of training text, as on the command line and in a config."""

import dataclasses
import math
import re
import shlex
from typing import Any


class DataError(ValueError):
    """Training text cannot be read or used; the message is one line that says what is wrong."""


@dataclasses.dataclass(frozen=True)
class Source:
    r"""A source of training text: files, how they divide into documents, and a sampling weight.

    A `.py` file is one document. Each line of a `.jsonl` or `.tsv` file is one document. A `.txt`
    file is one document unless `separator` splits it. Documents that contain only white space are
    dropped.

    Attributes:
      path: a file, a directory (all files with a suffix above, subdirectories included), or a glob
        (`**` crosses directories). Any of the files may be gzipped: `.txt.gz`.
      weight: weight with which windows are sampled from this source, relative to other sources.
      valid: files held out for validation, written as `path`; they are not trained on. By default
        a share `DataConfig.valid_fraction` of the documents of `path` is held out.
      separator: a regular expression for the text between the documents of a `.txt` file, which
        belongs to none of them; `^` and `$` match at every line. Two blank lines: `\n{3,}`.
        A header to drop: `\n*^# file: .*\n`. A header to keep: `^(?=# file: )`.
      template: format string that makes a document from a line of a table; `\n` and `\t` are
        written as here. `.jsonl`: fields of the object, as in `{question}\n{answer}` (default
        `{text}`). `.tsv`: columns counted from 0, as in `{1}\t{0}\n` (default: the whole line).
    """

    path: str
    weight: float = 1.0
    valid: str = ""
    separator: str = ""
    template: str = ""

    def __post_init__(self):
        if not self.path:
            raise DataError("a source needs a path")
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise DataError(f"{self.path}: the weight must be positive, not {self.weight}")
        try:
            re.compile(self.separator)
        except re.error as error:
            raise DataError(
                f"{self.path}: the separator {self.separator!r} is no regular expression: {error}"
            ) from None

    @classmethod
    def parse(cls, text: str) -> "Source":
        r"""Parses a source from a line such as `books/*.txt.gz weight=2 separator="\n{3,}"`.

        The path comes first. Text with spaces has to be quoted; backslashes are literal.
        """
        lexer = shlex.shlex(text, posix=True)
        lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
        try:
            path, *settings = lexer
            fields: dict[str, Any] = dict(setting.split("=", 1) for setting in settings)
            if "weight" in fields:
                fields["weight"] = float(fields["weight"])
            return cls(path, **fields)
        except DataError:
            raise
        except (TypeError, ValueError):
            names = ", ".join(f"{field.name}=" for field in dataclasses.fields(cls)[1:])
            raise DataError(f"{text!r}: a source is a path, then any of {names}") from None

    def __str__(self) -> str:
        """Formats the source as a line that `parse` reads back."""
        changed = {
            field.name: value
            for field in dataclasses.fields(self)[1:]
            if (value := getattr(self, field.name)) != field.default
        }
        words = [self.path, *(f"{name}={value}" for name, value in changed.items())]
        return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    """Quotes a word for `Source.parse` if it has spaces or quotes."""
    if word and not set(word) & set(" \t\r\n'\""):
        return word
    return '"' + word.replace('"', '"\'"\'"') + '"'
