"""Constraints on what is written: regular expressions, JSON schemas, choices, valid UTF-8.

Each returns an automaton over bytes, for `bytelax.generate(constraint=)` and
`decode.Params(constraint=)`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bytelax import vocab
from bytelax.decode.constraint import Automaton

_END = "\U0010ffff"  # no character: Unicode keeps it out of texts


def regex(pattern: str) -> Automaton:
    """Allows texts that match a pattern as a whole.

    The syntax is that of Rust's `regex` crate without anchors, word boundaries and the flag `x`;
    characters are those of Unicode, encoded as UTF-8. It needs outlines-core:
    `pip install outlines-core`.

    Raises:
      ValueError: the pattern is not one, or nothing matches it.
    """
    core = _outlines_core()
    if not _stands_in_brackets(pattern):
        raise ValueError(f"{pattern!r} has an anchor, the flag x, or brackets without a partner")
    single = {bytes([byte]): [byte] for byte in range(vocab.BYTES)}
    # An index of outlines-core 0.2.14 misses ways that lead on from accepting states, as of (ab)*.
    # So the pattern ends in a character that no text has, and there are none before it.
    marked = rf"(?:{pattern})\x{{{ord(_END):X}}}"
    try:
        index = core.Index(marked, core.Vocabulary(vocab.BYTES, single))  # its end is id 256
    except ValueError as error:
        raise ValueError(f"{pattern!r} is not a pattern, or nothing matches it ({error})") from None
    steps, start = index.get_transitions(), index.get_initial_state()
    ends = index.get_final_states()
    number = {state: nth for nth, state in enumerate({start, *steps, *ends})}
    following = np.full((len(number), vocab.BYTES), -1, np.int32)
    for state, others in steps.items():
        for byte, other in others.items():
            if byte < vocab.BYTES:
                following[number[state], byte] = number[other]
    after = np.arange(len(number))  # where the last character leads to from each state
    for byte in _END.encode():
        after = np.where(after < 0, -1, following[after, byte])
    accepting = np.isin(after, [number[state] for state in ends])
    return Automaton.of(following, np.flatnonzero(accepting).tolist(), number[start])


def _stands_in_brackets(pattern: str) -> bool:
    """Whether a pattern means the same in brackets, and before other text, as alone.

    `a)(b` does not, nor `a$`; comments of the flag x might hide such parts.
    """
    bare = re.sub(r"\\[^bBAz<>]", "_", pattern, flags=re.DOTALL)
    classes, groups = r"\[\^?\]?[^\]\[]*\]", r"\((?!\?[imsURu]*x)[^()^$\\]*\)"
    for part in (classes, groups):
        found = 1
        while found:  # the innermost ones
            bare, found = re.subn(part, "_", bare)
    return not re.search(r"[()^$\\]", bare)


def json_schema(schema: Mapping[str, Any] | str) -> Automaton:
    """Allows JSON of a schema: a mapping, or text. It needs outlines-core, as `regex` does.

    Members stand in the schema's order. Objects and arrays nest as deeply as the schema says, so
    recursive references are refused. A `pattern` matches a whole string as JSON writes it. It is
    not checked whether it lets quotes through, nor whether the formats `time` and `uri` do.

    Raises:
      ValueError: the schema cannot be made into a regular expression.
    """
    core = _outlines_core()
    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        pattern = core.json_schema.build_regex_from_schema(json.dumps(_grouped(schema)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a JSON schema: {error}") from None
    # In a schema these are ASCII, in Rust Unicode.
    ascii_only = {r"\d": "[0-9]", r"\w": "[0-9A-Za-z_]"}
    return regex(re.sub(r"\\.", lambda found: ascii_only.get(found[0], found[0]), pattern))


def _grouped(schema: Any) -> Any:
    """The schema with its patterns in brackets: outlines-core would split them at a `|`."""
    if isinstance(schema, list):
        return [*map(_grouped, schema)]
    if not isinstance(schema, Mapping):
        return schema
    parts = {k: v if k in ("const", "enum") else _grouped(v) for k, v in schema.items()}
    if isinstance(pattern := parts.get("pattern"), str):
        parts["pattern"] = "^(?:" + re.sub(r"\A\^|(?<!\\)\$\Z", "", pattern) + ")$"
    return parts


def choice(texts: Iterable[bytes | str]) -> Automaton:
    """Allows one of some texts.

    Raises:
      ValueError: there are none.
    """
    steps: list[dict[int, int]] = [{}]
    ends = []
    for text in vocab.strings("texts", texts):
        state = 0
        for byte in vocab.as_bytes(text):
            if byte not in steps[state]:
                steps[state][byte] = len(steps)
                steps.append({})
            state = steps[state][byte]
        ends.append(state)
    following = np.full((len(steps), vocab.BYTES), -1, np.int32)
    for state, others in enumerate(steps):
        following[state, list(others)] = list(others.values())
    return Automaton.of(following, ends)


def utf8() -> Automaton:
    """Allows valid UTF-8, as the Unicode standard defines it (table 3-7), in whole characters."""
    following = np.full((8, vocab.BYTES), -1, np.int32)
    for state, first, last, after in (
        (0, 0x00, 0x7F, 0), (0, 0xC2, 0xDF, 1), (0, 0xE0, 0xE0, 2), (0, 0xE1, 0xEC, 3),
        (0, 0xED, 0xED, 4), (0, 0xEE, 0xEF, 3), (0, 0xF0, 0xF0, 5), (0, 0xF1, 0xF3, 6),
        (0, 0xF4, 0xF4, 7), (1, 0x80, 0xBF, 0), (2, 0xA0, 0xBF, 1), (3, 0x80, 0xBF, 1),
        (4, 0x80, 0x9F, 1), (5, 0x90, 0xBF, 3), (6, 0x80, 0xBF, 3), (7, 0x80, 0x8F, 3),
    ):  # fmt: skip
        following[state, first : last + 1] = after
    return Automaton.of(following, [0])


def _outlines_core():
    try:
        import outlines_core
        import outlines_core.json_schema
    except ImportError:
        needed = "pip install outlines-core"
        raise ImportError(f"regular expressions need outlines-core: {needed}") from None
    return outlines_core
