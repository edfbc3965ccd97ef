"""The tables of Fast BLT (arXiv 2605.08044v1, Tables 3 to 10), as rows by name."""

import json
import pathlib
from collections.abc import Iterable, Iterator
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


# How the rules of unmasking are printed, but for their thresholds.
_RULES = {"one-step": "one-step", "confidence": "a=", "entropy": "g="}


def _like(method: str, options: dict) -> list[Row]:
    """Rows of a method of bytelax with as many drafted bytes and the same kind of unmasking."""
    drafted = options.get("draft_length", options.get("block_size"))
    unmask = options.get("unmask", "one-step")
    rule = _RULES.get(unmask, "") if method in ("blt-d", "blt-dv") else "k="
    return [
        row
        for row in rows()
        if row.method.lower() == method and row.drafted == drafted and row.setting.startswith(rule)
    ]


def shown(method: str, options: dict) -> str | None:
    """The lowest and the highest acceptance printed for a method, in per cent, over all tables.

    Args:
      method: its name in bytelax.
      options: of the method. Rows of other lengths and kinds of unmasking are left out; thresholds
        may differ.

    Returns:
      "86 to 96", or None if there is no such row.
    """
    return _range(row.acceptance for row in _like(method, options))


def _range(shares: Iterable[float | None]) -> str | None:
    found = [100 * share for share in shares if share is not None]
    return f"{min(found):.0f} to {max(found):.0f}" if found else None


def weights(table: str) -> Sizes:
    """As printed, for the model of a table."""
    printed = json.loads(_PATH.read_text())["weights_in_billions"][table[:2]]
    return Sizes(
        decoder=1e9 * printed["decoder"],
        encoder=1e9 * printed["encoder"],
        global_=1e9 * printed["global"],
    )
