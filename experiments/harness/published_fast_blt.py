"""The tables of Fast BLT (arXiv 2605.08044v1, Tables 3 to 10), as rows by name."""

import json
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from bytelax.calculator import Sizes

_PATH = pathlib.Path(__file__).with_suffix(".json")


class Row(NamedTuple):
    """A row as printed.

    Attributes:
      table: model and task, "3B FrEn".
      model: "BLT", or the block size of a BLT-D, "B=8".
      method: "AR", "BLT-S", "BLT-D" or "BLT-DV".
      setting: as printed, "k=8", "a=0.5", "one-step".
      score: spBLEU or pass@1.
      acceptance: accepted bytes of those drafted, a share; None where nothing is verified.
      decoder, global_: forward passes a text.
      gigabytes: read for a text.
      decrease: per cent less than plain decoding.
    """

    table: str
    model: str
    method: str
    setting: str
    score: float
    acceptance: float | None
    decoder: float
    global_: float
    gigabytes: float
    decrease: float | None

    @property
    def drafted(self) -> int | None:
        """Bytes that a round drafts."""
        number = self.setting if self.method == "BLT-S" else self.model
        return int(number[2:]) if "=" in number and number[0] in "kB" else None

    @property
    def text_bytes(self) -> int:
        """Bytes generated for each prompt, whatever the answer's length."""
        return 256 if self.table.endswith("MBPP") else 512


def rows() -> Iterator[Row]:
    for table, printed in json.loads(_PATH.read_text())["tables"].items():
        for model, method, setting, score, percent, *passes in printed:
            acceptance = None if percent is None else percent / 100
            yield Row(table, model, method, setting, score, acceptance, *passes)


# In the table of the 3B model, French to English: the row of each setting.
_VERIFIED = {
    "blt-s 8": ("BLT", "BLT-S", "k=8"),
    "blt-s 16": ("BLT", "BLT-S", "k=16"),
    "blt-dv 8, one step": ("B=8", "BLT-DV", "one-step"),
    "blt-dv 16, one step": ("B=16", "BLT-DV", "one-step"),
}


def acceptance() -> dict[str, tuple[float, ...]]:
    """Acceptance by position of methods that verify, to replay. One rate is printed for all."""
    printed = {
        (row.model, row.method, row.setting): (row.acceptance,) * (row.drafted or 0)
        for row in rows()
        if row.table == "3B FrEn" and row.acceptance is not None
    }
    return {name: printed[row] for name, row in _VERIFIED.items()}


# How a rule of unmasking is printed: what its threshold is called here, and its letter.
_THRESHOLDS = {"confidence": ("alpha", "a"), "entropy": ("gamma", "g")}


def rules(method: str) -> list[dict]:
    """The rules of unmasking that are published for `blt-d` or `blt-dv`, as options of bytelax."""
    printed = dict.fromkeys(row.setting for row in rows() if row.method.lower() == method)
    names = {letter: (rule, name) for rule, (name, letter) in _THRESHOLDS.items()}
    found = []
    for setting in printed:
        letter, _, threshold = setting.partition("=")
        rule, name = names.get(letter, (setting, ""))
        found.append({"unmask": rule} | ({name: float(threshold)} if threshold else {}))
    return found


def _setting(options: dict) -> str:
    """How the options of a method are printed."""
    if "draft_length" in options:
        return f"k={options['draft_length']}"
    rule = options.get("unmask", "one-step")
    if rule not in _THRESHOLDS:
        return rule
    name, letter = _THRESHOLDS[rule]
    return f"{letter}={options.get(name)}"


def _like(method: str, options: dict) -> list[Row]:
    """Rows of a method of bytelax with as many drafted bytes and the same rule of unmasking."""
    drafted = options.get("draft_length", options.get("block_size"))
    return [
        row
        for row in rows()
        if row.method.lower() == method
        and row.drafted == drafted
        and row.setting == _setting(options)
    ]


def shown(method: str, options: dict) -> dict[str, str | None]:
    """What is printed of a method, the lowest and the highest of all tables, as fields of a row.

    Args:
      method: its name in bytelax.
      options: of the method. Rows of other lengths, rules and thresholds are left out.

    Returns:
      `published_acceptance` in per cent, "86 to 96", and `published_weights`, what it reads of the
      weights that plain decoding reads, "0.32 to 0.67"; None if there is no such row.
    """
    found = _like(method, options)
    kept = [100 * row.acceptance for row in found if row.acceptance is not None]
    read = [1 - row.decrease / 100 for row in found if row.decrease is not None]
    return {
        "published_acceptance": _range(kept, ".0f"), "published_weights": _range(read, ".2f")
    }  # fmt: skip


def _range(figures: list[float], form: str) -> str | None:
    return f"{min(figures):{form}} to {max(figures):{form}}" if figures else None


def weights(table: str) -> Sizes:
    """As printed, for the model of a table."""
    printed = json.loads(_PATH.read_text())["weights_in_billions"][table[:2]]
    return Sizes(
        decoder=1e9 * printed["decoder"],
        encoder=1e9 * printed["encoder"],
        global_=1e9 * printed["global"],
    )
