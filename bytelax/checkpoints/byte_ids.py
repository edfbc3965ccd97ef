"""Which ids of a byte transformer of transformers are bytes.

A checkpoint from elsewhere is put into the order of `bytelax.vocab` once, when it is read; nothing
else knows that its ids were others. Ids that are neither bytes nor BOS nor EOS are left out.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from bytelax import vocab
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.tensors import Tensor

ASKED = ("bytes_at", "bos", "eos")  # keywords of `bytelax.load`
_TABLES = ("embed_tokens.weight", "lm_head.weight")  # which have a row for each id


def find(
    directory: pathlib.Path, fields: Mapping, asked: Mapping[str, Any]
) -> Int[np.ndarray, " 260"]:
    """Finds the id, in a checkpoint that bytelax did not write, of each id of `bytelax.vocab`.

    Args:
      directory: of the checkpoint.
      fields: the JSON object in its config.json.
      asked: some of `ASKED`: the id of byte 0, after which those of the others follow, and BOS and
        EOS. Without the first, a model of 256 ids has the bytes themselves.

    Returns:
      The ids; -1 for one that there is not.

    Raises:
      CheckpointError: there are no such ids, or nothing says which ids are bytes.
    """
    for name, value in asked.items():
        if value is not None and type(value) is not int:
            raise CheckpointError(f"{name} is an id, not {value!r}")
    size, at = fields.get("vocab_size"), asked.get("bytes_at")
    if at is None and size == vocab.BYTES:
        at = 0
    if at is None or type(size) is not int:
        raise CheckpointError(
            f"{directory} is a {fields['model_type']} of {size!r} ids, and nothing says which of "
            "them are bytes: give the id of byte 0, as bytes_at=, and bos= and eos= if there are "
            "any"
        )
    special = {vocab.BOS: asked.get("bos"), vocab.EOS: asked.get("eos")}
    special = {ours: theirs for ours, theirs in special.items() if theirs is not None}
    known = (at, at + vocab.BYTES - 1, *special.values())
    if not 0 <= min(known) <= max(known) < size:
        raise CheckpointError(
            f"{directory}: its bytes, BOS and EOS are ids {min(known)}..{max(known)} of {size}"
        )
    eos = special.get(vocab.EOS, -1)
    if at <= eos < at + vocab.BYTES:
        raise CheckpointError(
            f"{directory}: eos {eos} is the id of byte {eos - at}, which a text may hold: leave it "
            "out, and stop at that byte with stop="
        )
    order = np.full(vocab.SIZE, -1)
    order[vocab.OFFSET :] = np.arange(at, at + vocab.BYTES)
    order[[*special]] = [*special.values()]
    return order


def reordered_fields(fields: Mapping, order: Int[np.ndarray, " 260"]) -> dict:
    """The fields of config.json with which the same model has the ids of `bytelax.vocab`."""
    ours: dict[str, Any] = {
        "vocab_size": vocab.SIZE,
        "bos_token_id": None if order[vocab.BOS] < 0 else vocab.BOS,
        "eos_token_id": None if order[vocab.EOS] < 0 else vocab.EOS,
        "bytelax": {},
    }
    return {**fields, **ours}


def reordered(
    tensors: Mapping[str, Tensor], order: Int[np.ndarray, " 260"], size: int, source: str
) -> dict[str, Tensor]:
    """The tables with a row for each id, in the order of `bytelax.vocab`.

    An id that `bytelax.vocab` has and the checkpoint has not gets a row of zeros.

    Args:
      tensors: of the model, some of which are such tables.
      order: from `find`.
      size: number of ids of the model.
      source: name of the checkpoint in error messages.

    Raises:
      CheckpointError: a table has another number of rows.
    """
    found = {name: tensors[name] for name in _TABLES if name in tensors}
    for name, table in found.items():
        if table.shape[:1] != (size,):
            raise CheckpointError(
                f"{source}: {name} has shape {table.shape}, its config calls for {size} rows"
            )
    return {name: _in_order(table, order) for name, table in found.items()}


def _in_order(table, order):
    def rows(start, stop):
        found = table.whole()[order]
        return np.where((order >= 0)[:, None], found, np.zeros((), found.dtype))[start:stop]

    return Tensor((vocab.SIZE, *table.shape[1:]), table.dtype, rows)


def refuse(asked: Mapping[str, Any]) -> None:
    """Raises CheckpointError if ids are given for a checkpoint whose ids are known.

    Args:
      asked: as in `find`.
    """
    if asked:
        raise CheckpointError(
            f"{', '.join(asked)} cannot be given here: the ids of this model are those of "
            "bytelax.vocab"
        )
