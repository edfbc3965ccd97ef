"""Constraints on what is written: regular expressions, JSON schemas, choices, valid UTF-8.

Each returns an automaton over bytes, for `bytelax.generate(constraint=)` and
`decode.Params(constraint=)`.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bytelax import vocab
from bytelax.decode.constraint import Automaton

_END = "\U0010ffff"  # no character: Unicode keeps it out of texts


def regex(pattern: str) -> Automaton:
    """Allows texts that match a pattern as a whole.

    The syntax is that of Rust's `regex` crate without anchors and look-around; characters are of
    Unicode, and encoded as UTF-8. It needs outlines-core: `pip install 'bytelax[constraints]'`.

    Raises:
      ValueError: the pattern is not one, or nothing matches it.
    """
    core = _outlines_core()
    single = {bytes([byte]): [byte] for byte in range(vocab.BYTES)}
    # An index of outlines-core 0.2.14 misses ways that lead on from accepting states, as of (ab)*.
    # So the pattern ends in a character that no text has, and there are none before it.
    marked = rf"(?:{pattern})\x{{{ord(_END):X}}}"
    try:
        for each in (pattern, marked):  # a pattern that is none by itself may be one in brackets
            index = core.Index(each, core.Vocabulary(vocab.BYTES, single))  # its end is id 256
    except ValueError as error:
        raise ValueError(
            f"{pattern!r} is no pattern without anchors, or nothing matches it ({error})"
        ) from None
    steps, start = index.get_transitions(), index.get_initial_state()
    ends = index.get_final_states()
    number = {state: nth for nth, state in enumerate({start, *steps, *ends})}
    following = np.full((len(number), vocab.BYTES), -1, np.int32)
    for state, others in steps.items():
        for byte, other in others.items():
            if byte < vocab.BYTES:
                following[number[state], byte] = number[other]
    behind = np.arange(len(number))  # where the last character leads to from each state
    for byte in _END.encode():
        behind = np.where(behind < 0, -1, following[behind, byte])
    accepting = np.isin(behind, [number[state] for state in ends])
    return Automaton.of(following, np.flatnonzero(accepting).tolist(), number[start])


def json_schema(schema: Mapping[str, Any] | str) -> Automaton:
    """Allows JSON of a schema: a mapping, or text. It needs outlines-core, as `regex` does.

    Members stand in the schema's order. Objects and arrays nest as deeply as the schema says, so
    recursive references are refused.

    Raises:
      ValueError: the schema cannot be made into a regular expression.
    """
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        pattern = _outlines_core().json_schema.build_regex_from_schema(text)
    except TypeError as error:
        raise ValueError(f"no JSON schema: {error}") from None
    return regex(pattern)


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
        needed = "pip install 'bytelax[constraints]'"
        raise ImportError(f"regular expressions need outlines-core: {needed}") from None
    return outlines_core
