"""One setting has one figure: speeds of the same setting on several pages, beside one another."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

TOLERANCE = 0.05  # of a bound of a range


class Setting(NamedTuple):
    """What a speed is of. Prompts and lengths of texts differ between studies."""

    model: str
    method: str
    options: frozenset[tuple[str, object]]
    temperature: float
    batch: int = 1

    @classmethod
    def of(cls, model: str, method: str, options: dict, temperature: float, batch: int = 1):
        return cls(model, method, frozenset(options.items()), temperature, batch)


class Timed(NamedTuple):
    """The speed of a setting beside plain decoding (W = 1, with caches), with its range."""

    setting: Setting
    speed: float
    low: float
    high: float


def of_rows(report: dict) -> Iterator[Timed]:
    """Those of a report whose settings name a method, a temperature and options.

    The model is that of the setting, or else that of the report.
    """
    for row in report["rows"]:
        if "decode_speed" not in row:
            continue
        options = dict(row["setting"])
        method, temperature = options.pop("method"), options.pop("temperature")
        model = options.pop("model", report.get("model"))
        if all(isinstance(option, int | float | str) for option in options.values()):
            setting = Setting.of(model, method, options, temperature)
            yield Timed(setting, row["decode_speed"], *row["decode_speed_range"])


def disagreeing(found: Iterable[Timed]) -> dict[Setting, list[Timed]]:
    """The settings whose ranges have no speed in common, each widened by `TOLERANCE`."""
    pages: dict[Setting, list[Timed]] = {}
    for each in found:
        pages.setdefault(each.setting, []).append(each)
    return {
        setting: own
        for setting, own in pages.items()
        if max(each.low for each in own) * (1 - TOLERANCE)
        > min(each.high for each in own) * (1 + TOLERANCE)
    }
