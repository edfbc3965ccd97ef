"""Drafts across patch boundaries in batches, beside the best plain decoding at that size.

In a batch some row closes a patch at nearly every byte, so plain decoding runs the global
transformer nearly every time. Rows that have closed a patch can wait for one another and share its
run (`synchronous`), and so can rows whose windows are verified. A patch of `tiny` has at most eight
bytes: in a window of nine every row closes one and none waits, so that only short drafts tell.
"""

import dataclasses
import functools
import statistics
from typing import NamedTuple

from bytelax import generate, load
from bytelax.decode import Empty, Method, MultiByte, Nested, PastBoundary
from bytelax.measure import timing
from bytelax.measure.timing import Contestant
from experiments.harness import bundled_data, evidence, study, thunks

PROMPTS = {1: 10, 4: 16, 16: 32, 64: 64}  # by the number of rows that are decoded together
REPEATS = 3
AHEAD = 4  # bytes that heads draft for the decoder
DRAFTERS = {
    "none": Empty(),
    "stale, 2 bytes": PastBoundary(2),
    "stale, 8 bytes": PastBoundary(8),
    "predicted, 16 bytes": PastBoundary(16, "predicted"),
    "predicted, nested, 16 bytes": Nested(16, MultiByte(AHEAD), "predicted"),
}
WAITING = ("none", "stale, 2 bytes")  # that are measured with rows that wait, too
PARTS = {
    "draft": ("draft",),
    "patcher, encoder, decoder": ("patcher", "encoder", "decoder"),
    "global": ("closing patches", "global"),
    "rest": ("acceptance and loop", thunks.GAP),
}


class Way(NamedTuple):
    """What drafts, and the share of the rows that wait for one another."""

    drafts: str
    wait: float

    def __str__(self):
        return f"{self.drafts}, rows wait" if self.wait else self.drafts


def ways(rows, *, smoke):
    """What is measured at a size; one row has nobody to wait for."""
    names = WAITING if smoke else DRAFTERS
    shares = {name: (0.0, 1.0) if name in WAITING and rows > 1 else (0.0,) for name in names}
    return [Way(name, share) for name in names for share in shares[name]]


def run(options, temperatures, scratch):
    """Measures all sizes, with the model's own heads; `thunks.dump_to` was given `scratch`."""
    model = load(options.model, dtype="float32")
    study.run(
        options.results / "batches.json",
        {
            "model": options.model, "prompts": options.prompts, "prompt_bytes": options.context,
            "new": options.new, "split": options.split, "repeats": min(options.repeats, REPEATS),
        },
        [
            {"rows": rows, "temperature": temperature}
            for rows in ([4] if options.smoke else PROMPTS)
            for temperature in temperatures[: 1 if options.smoke else None]
        ],
        lambda setting: measure(setting, model, options, scratch),
        markdown=markdown,
    )  # fmt: skip


def measure(setting, model, options, scratch):
    """All ways in turns: speed beside the best plain one, what the batch ran, and by part."""
    rows, temperature = setting["rows"], setting["temperature"]
    prompts = min(options.prompts, PROMPTS[rows]) // rows * rows
    texts = [
        text
        for _, text in bundled_data.prompts(options.data, prompts, options.context, options.split)
    ]
    contestants = {
        way: Contestant(
            Method(dataclasses.replace(model.target(), synchronous=way.wait), DRAFTERS[way.drafts]),
            {},
        )
        for way in ways(rows, smoke=options.smoke)
    }
    runs = timing.in_turns(
        model, texts, [*contestants.values()], batch=rows, new=options.new,
        repeats=min(options.repeats, REPEATS), temperature=temperature,
    )  # fmt: skip
    runs = dict(zip(contestants, runs, strict=True))
    plain = [way for way in runs if way.drafts == "none"]
    best = min(plain, key=lambda way: statistics.median(runs[way].decode_seconds))
    alone = runs[plain[0]]
    found = {}
    for way, own in runs.items():
        batches = own.stats.bytes / rows  # bytes of a row, over all batches
        decode = functools.partial(
            generate, model, texts[:rows], method=contestants[way].method,
            max_new_bytes=options.new, allow_eos=False, temperature=temperature,
        )  # fmt: skip
        speed = timing.beside(runs[best], own).decode_speed
        found[str(way)] = {
            "drafts": way.drafts,
            "wait": way.wait,
            "speed": speed,
            "of_default": timing.beside(alone, own).decode_speed.median,
            "of_no_waiting": timing.beside(runs[way._replace(wait=0.0)], own).decode_speed,
            "bytes_per_second": own.stats.bytes / statistics.median(own.decode_seconds),
            "bytes_per_round": own.stats.bytes / own.stats.rounds,
            "windows_per_byte": own.stats.batch_windows / batches,
            "global_runs_per_byte": own.stats.global_chunks / batches,
            "same_outputs": timing.beside(runs[way._replace(wait=0.0)], own).same_outputs,
            "parts": thunks.profile(decode, rows * options.new, scratch)["ms"],
        }
    return {"prompts": prompts, "best_plain": str(best), "ways": found}


def markdown(report):
    lines = [
        "# Drafts across patch boundaries in batches",
        "",
        *evidence.warning(report),
        f"`{report['model']}`, {report['split']} files, prompts of {report['prompt_bytes']} bytes "
        f"over five genres, {report['new']} new bytes, {study.machine(report)}.",
        "",
        f"- Speed: median of {report['repeats']} ratios to the best plain decoding at the same "
        "size, in turns in one process, without the prompts; in brackets their range.",
        "- Rows wait: those that have closed a patch wait until all others have, too.",
        "- Windows and runs of the global transformer: of the batch, per byte of a row.",
        "- Same: prompts whose bytes are those that are written where no row waits.",
        "- Milliseconds: per byte that is written, by XLA's own trace of one batch, which slows "
        "small operations down. Those of a verified window are shared out among patcher, encoder "
        "and decoder, and what runs for closed patches, the global transformer above all.",
    ]
    for row in report["rows"]:
        setting, found = row["setting"], row["ways"]
        of = "row" if setting["rows"] == 1 else "rows"
        lines += [
            "",
            f"## {setting['rows']} {of}, temperature {setting['temperature']:g}",
            "",
            f"{row['prompts']} prompts. The best plain decoding: {_PLAIN[row['best_plain']]}.",
            "",
            *study.table(_HEADER, [_cells(row, name, own) for name, own in found.items()]),
        ]
    return "\n".join([*lines, ""])


_PLAIN = {"none": "no row waits", "none, rows wait": "rows wait"}
_HEADER = (
    "drafts", "speed", "beside plain whose rows do not wait", "where no row waits, beside it",
    "bytes per second", "bytes per round", "windows", "global runs", "same",
    *(f"{part}, ms" for part in PARTS),
)  # fmt: skip


def _cells(row, name, own):
    return (
        name, _told(own["speed"]), f"{own['of_default']:.2f}",
        _told(own["of_no_waiting"]) if own["wait"] else None, f"{own['bytes_per_second']:.0f}",
        f"{own['bytes_per_round']:.2f}", f"{own['windows_per_byte']:.2f}",
        f"{own['global_runs_per_byte']:.2f}", f"{own['same_outputs']}/{row['prompts']}",
        *(f"{sum(own['parts'][each] for each in parts):.3f}" for parts in PARTS.values()),
    )  # fmt: skip


def _told(ratio):
    return "{:.2f} ({:.2f} to {:.2f})".format(*ratio)
