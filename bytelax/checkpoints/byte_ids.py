"""Which ids of a model of transformers are bytes, read from its tokenizer files or given.

A checkpoint from elsewhere is put into the order of `bytelax.vocab` once, when it is read; no
other code sees the original ids. Ids that are neither bytes nor BOS nor EOS are left out.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bytelax import vocab
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.tensors import Tensor

ASKED = ("bytes_at", "bos", "eos")  # keywords of `bytelax.load`
_GIVE = (
    "give the id of byte 0, as bytes_at= (--override bytes_at=), and bos= and eos= if there are any"
)
_TABLES = ("embed_tokens.weight", "lm_head.weight")  # which have a row for each id
_SPECIAL = re.compile(r"<.*>|\[.*\]", re.DOTALL)  # names of tokens that are not text
_BYT5 = {"<pad>": 0, "</s>": 1, "<unk>": 2}


@dataclasses.dataclass(frozen=True)
class ByteIds:
    """The ids of a vocabulary of bytes.

    Attributes:
      bytes: id of each of the 256 bytes.
      bos, eos: ids of the beginning and the end of a text; None if there is none.
    """

    bytes: tuple[int, ...]
    bos: int | None = None
    eos: int | None = None

    def __post_init__(self):
        if self.eos in self.bytes:
            raise ValueError(
                f"eos {self.eos} is the id of byte {self.bytes.index(self.eos)}, which a text may "
                "hold: leave it out, and stop at that byte with stop="
            )

    def check(self, ids: int) -> None:
        """Raises ValueError unless all of them are below `ids`, the number of ids of a model."""
        known = [*self.bytes, *(x for x in (self.bos, self.eos) if x is not None)]
        if not 0 <= min(known) <= max(known) < ids:
            raise ValueError(f"its bytes, BOS and EOS are ids {min(known)}..{max(known)} of {ids}")

    def fields(self, fields: Mapping) -> dict:
        """The fields of config.json with which the same model has the ids of `bytelax.vocab`."""
        ours: dict[str, Any] = {
            "vocab_size": vocab.SIZE,
            "bos_token_id": None if self.bos is None else vocab.BOS,
            "eos_token_id": None if self.eos is None else vocab.EOS,
            "bytelax": {},
        }
        return {**fields, **ours}

    def reordered(self, tensors: Mapping[str, Tensor], ids: int, source: str) -> dict[str, Tensor]:
        """The tables with a row for each id, in the order of `bytelax.vocab`.

        An id that `bytelax.vocab` has and this vocabulary has not gets a row of zeros. The model
        has `ids` ids in all.

        Raises:
          CheckpointError: a table has another number of rows.
        """
        found = {name: tensors[name] for name in _TABLES if name in tensors}
        for name, table in found.items():
            if table.shape[:1] != (ids,):
                raise CheckpointError(
                    f"{source}: {name} has shape {table.shape}, its config needs {ids} rows"
                )
        return {name: self._in_order(table) for name, table in found.items()}

    def _in_order(self, table):
        order = np.full(vocab.SIZE, -1)
        order[vocab.OFFSET :] = self.bytes
        order[vocab.BOS], order[vocab.EOS] = (-1 if x is None else x for x in (self.bos, self.eos))
        there = (order >= 0)[:, None]

        def rows(start, stop):
            found = table.whole()[order]
            return np.where(there, found, np.zeros((), found.dtype))[start:stop]

        return Tensor((vocab.SIZE, *table.shape[1:]), table.dtype, rows)


def find(directory: pathlib.Path, fields: Mapping, asked: Mapping[str, Any]) -> ByteIds:
    """Finds the ids of bytes of a checkpoint that bytelax did not write.

    Args:
      directory: of the checkpoint, whose tokenizer files are read unless `bytes_at` is given.
      fields: the JSON object in its config.json.
      asked: some of `ASKED`: the id of byte 0, after which those of the others follow, and BOS and
        EOS. Without `bytes_at` the latter two replace those of the tokenizer.

    Raises:
      CheckpointError: there is no such vocabulary, or no file shows which ids are bytes.
    """
    size, at = fields.get("vocab_size"), asked.get("bytes_at")
    ids = _in_a_row(at) if at is not None else _of_tokenizer(directory)
    if ids is None and size == vocab.BYTES:
        ids = _in_a_row(0)
    if ids is None:
        raise CheckpointError(
            f"{directory} is a {fields['model_type']} of {size} ids, and no tokenizer file says "
            f"which of them are bytes: {_GIVE}"
        )
    try:
        ids = dataclasses.replace(ids, **{x: asked[x] for x in ("bos", "eos") if x in asked})
        ids.check(size or 0)
    except ValueError as error:
        raise CheckpointError(f"{directory}: {error}") from None
    return ids


def refuse(asked: Mapping[str, Any]) -> None:
    """Raises CheckpointError if ids are given for a checkpoint whose ids are known."""
    if asked:
        raise CheckpointError(
            f"{', '.join(asked)} cannot be given here: the ids of this model are those of "
            "bytelax.vocab"
        )


def _in_a_row(first):
    return ByteIds(tuple(range(first, first + vocab.BYTES)))


def _of_tokenizer(directory: pathlib.Path) -> ByteIds | None:
    """Reads the ids from tokenizer.json and tokenizer_config.json; None if there is neither."""
    about, model = (
        plain.read_json(path) if (path := directory / name).exists() else {}
        for name in ("tokenizer_config.json", "tokenizer.json")
    )
    if str(about.get("tokenizer_class")).startswith("ByT5"):
        added = about.get("added_tokens_decoder") or {}
        tokens = _BYT5 | {_content(added[x]): int(x) for x in added if x.isdecimal()}
        ids = ByteIds(tuple(range(3, 3 + vocab.BYTES)))
        return dataclasses.replace(ids, eos=tokens.get(_content(about.get("eos_token", "</s>"))))
    if not model:
        return None
    tokens = _tokens(model)
    found = next(filter(None, (_all_of(tokens, name) for name in (_hex, _printable, chr))), None)
    added = {_content(token) for token in model.get("added_tokens") or ()}
    rest = tokens.keys() - added if found is None else tokens.keys() - added - set(found)
    words = sorted(token for token in rest if not _SPECIAL.fullmatch(token))
    if found is None or words:
        example = f", such as {words[len(words) // 2][:20]!r}" if words else ""
        raise CheckpointError(
            f"{directory} is not a model of bytes: its tokenizer has {len(words)} tokens that are "
            f"{'no bytes' if found else 'not the 256 bytes'}{example}"
        )
    ids = ByteIds(tuple(tokens[token] for token in found))
    first = _put_in_front(model) if about.get("add_bos_token") is None else None
    if about.get("add_bos_token"):
        first = _content(about.get("bos_token"))
    bos, eos = (tokens.get(each) for each in (first or "", _content(about.get("eos_token")) or ""))
    return dataclasses.replace(ids, bos=bos, eos=None if eos in ids.bytes else eos)


def _tokens(model: Mapping) -> dict[str, int]:
    """The ids of all tokens of a tokenizer.json."""
    known = model.get("model", {}).get("vocab") or {}
    if isinstance(known, list):  # of pairs with a score
        known = {token: index for index, (token, _) in enumerate(known)}
    return known | {_content(token): token["id"] for token in model.get("added_tokens") or ()}


def _content(token):
    """The text of a token, which is stored alone or in an object."""
    return token.get("content") if isinstance(token, dict) else token


def _all_of(tokens, name):
    """The tokens of the 256 bytes, if they have these names."""
    named = [name(byte) for byte in range(vocab.BYTES)]
    return named if tokens.keys() >= set(named) else None


def _hex(byte):
    """The name of a byte in SentencePiece."""
    return f"<0x{byte:02X}>"


_SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_HIDDEN = sorted(set(range(256)) - set(_SHOWN))


def _printable(byte):
    """The name of a byte in GPT-2: printable ones stand for themselves, others for 256, 257, ..."""
    return chr(byte) if byte in _SHOWN else chr(256 + _HIDDEN.index(byte))


def _put_in_front(model):
    """The special token that tokenizer.json itself puts in front of a text, if it does."""
    step = model.get("post_processor") or {}
    steps = step.get("processors") or [step]
    for each in steps:
        if each.get("type") == "TemplateProcessing":
            special = (each.get("single") or [{}])[0].get("SpecialToken")
            return special and special.get("id")
    return None
