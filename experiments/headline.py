"""The table a reader sees first: every speed with all that it holds for."""

import study

COLUMNS = (
    "model", "method", "lossless", "speed", "range", "baseline", "batch", "context, bytes", "T",
    "bytes a patch", "machine",
)  # fmt: skip


def lines(reports):
    """Lines of the table, from the reports by name; studies that are not there are left out."""
    rows = [
        *_best_settings("blt_methods", reports),
        *_best_settings("blt_methods_sampled", reports),
        *_best_settings("self_drafting", reports),
        *_batches(reports),
        *_wall_clock("wall_clock", reports),
        *_wall_clock("wall_clock_gpu", reports),
    ]
    return study.table(COLUMNS, rows)


def _best_settings(name, reports):
    """The fastest setting of each method, at each temperature."""
    report = reports.get(name)
    if report is None:
        return
    best = {}
    for row in report["rows"]:
        temperature = row["setting"].get("temperature", report.get("temperature"))
        key = row["setting"]["method"], temperature
        if key[0] != "ar" and row["decode_speed"] > best.get(key, row)["decode_speed"] - 1e-9:
            best[key] = row
    for (method, temperature), row in best.items():
        options = {
            key: value
            for key, value in row["setting"].items()
            if key not in ("method", "temperature")
        }
        yield _line(
            report, row, model=report["model"], method=_named(method, options),
            baseline="plain, W = 1", batch=1, context=report["prompt_bytes"],
            temperature=temperature,
        )  # fmt: skip


def _batches(reports):
    """At batches of 1, 8 and 64 the fastest lossless method beside the best plain decoding."""
    report = reports.get("batch")
    for row in report["rows"] if report else ():
        setting, methods = row["setting"], row["methods"]
        drafting = {n: m for n, m in methods.items() if m["lossless"] and n[:5] != "plain"}
        if setting["batch"] not in (1, 8, 64) or not drafting:
            continue
        name = max(drafting, key=lambda n: drafting[n]["decode_speed"])
        yield _line(
            report, methods[name], model=setting["model"], method=name,
            baseline=row["best_plain"], batch=setting["batch"], context=report["context"],
            temperature=report["temperature"],
        )  # fmt: skip


def _wall_clock(name, reports):
    """The fastest method that verifies on random weights of a larger size, at a given acceptance.

    What is replayed there is when drafts are kept, so that the text is not the model's.
    """
    report = reports.get(name)
    for row in report["rows"] if report else ():
        setting, methods = row["setting"], row["methods"]
        verified = {n: m for n, m in methods.items() if not n.startswith(("plain", "blt-d "))}
        if "shape" not in setting or not verified:
            continue
        best = max(verified, key=lambda n: verified[n]["decode_speed"])
        yield _line(
            report, methods[best], method=best, baseline="plain, W = 1", batch=1,
            model=f"random, {setting['shape']}; acceptance {setting['acceptance']}, replayed",
            context=report["context"], temperature=report["temperature"], lossless="replayed",
            machine=report["machine"] if report["device"] == "cpu" else report["device"],
        )  # fmt: skip


def _line(
    report, row, *, model, method, baseline, batch, context, temperature, lossless=None,
    machine=None,
):  # fmt: skip
    low, high = row["decode_speed_range"]
    patch = row.get("bytes_per_patch")  # of its own text: one that is lossy writes another
    return (
        model, method, lossless or ("yes" if row["lossless"] else "no"),
        f"{row['decode_speed']:.2f}",
        f"{low:.2f} to {high:.2f} ({report['repeats']} runs)", baseline, batch, context,
        f"{temperature:g}", f"{patch:.2f}" if patch else None, machine or report["machine"],
    )  # fmt: skip


def _named(method, options):
    return " ".join([method, *(f"{name} {value}," for name, value in options.items())]).rstrip(",")
