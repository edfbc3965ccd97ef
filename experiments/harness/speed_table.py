"""The table that a reader sees first: every speed with all that it holds for."""

from collections.abc import Iterator

COLUMNS = (
    "model", "method", "lossless", "acceptance, %", "speed", "range", "baseline", "batch",
    "context, bytes", "T",
    "bytes per patch", "machine",
)  # fmt: skip


def row(
    report: dict,
    figures: dict,
    *,
    model: str,
    method: str,
    baseline: str,
    batch: int,
    context: int,
    temperature: float | None,
    lossless: str | None = None,
    machine: str | None = None,
    over: str | None = None,
) -> tuple:
    """A row of the table.

    Args:
      report: that the method was measured in, with its `repeats` and its `machine`.
      figures: of the method, as `timing.figures` names them.
      lossless: in place of what `figures` say.
      temperature: None where acceptance is replayed.
      machine: in place of what `report` says.
      over: what the range is over; the repeats of the report if nothing is said.
    """
    low, high = figures["decode_speed_range"]
    patch = figures.get("bytes_per_patch")  # of its own text: a lossy method writes another
    kept = figures.get("acceptance")
    kept = kept["value"] if isinstance(kept, dict) else kept  # with an interval, or a number
    spread = over or f"{report['repeats']} runs"
    return (
        model, method, lossless or ("yes" if figures["lossless"] else "no"),
        f"{100 * kept:.1f}" if kept is not None and (lossless or figures["lossless"]) else None,
        f"{figures['decode_speed']:.2f}", f"{low:.2f} to {high:.2f} ({spread})", baseline, batch,
        context, None if temperature is None else f"{temperature:g}",
        f"{patch:.2f}" if patch else None, machine or report["machine"],
    )  # fmt: skip


def best_settings(report: dict) -> Iterator[tuple]:
    """Rows of the fastest setting of each method, at each temperature, beside plain decoding.

    A model or a temperature that a setting does not name is that of the report.
    """
    best = {}
    for figures in report["rows"]:
        model, temperature = (
            figures["setting"].get(name, report.get(name)) for name in ("model", "temperature")
        )
        key = model, figures["setting"]["method"], temperature
        if key not in best or figures["decode_speed"] >= best[key]["decode_speed"]:
            best[key] = figures
    for (model, method, temperature), figures in best.items():
        if method == "ar":
            continue
        options = {
            key: value
            for key, value in figures["setting"].items()
            if key not in ("model", "method", "temperature")
        }
        yield row(
            report, figures, model=model, method=_named(method, options),
            baseline="plain, W = 1", batch=1, context=report["prompt_bytes"],
            temperature=temperature,
        )  # fmt: skip


def _named(method, options):
    return " ".join([method, *(f"{name} {value}," for name, value in options.items())]).rstrip(",")
