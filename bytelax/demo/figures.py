"""The figures of a run in words, shared by the terminal and the page."""

from bytelax import calculator
from bytelax.demo.comparison import Comparison, Run

COLUMNS = ("method", "output", "rounds", "global", "weights", "bytes/s", "speed")
EXPLAINED = (
    "Per byte of output: rounds, in each of which the whole model checks its drafts in one pass; "
    "passes of the global transformer; and millions of weights read. Plain decoding makes a round "
    "for every byte. Speed is beside plain decoding, one prompt at a time."
)


def row(comparison: Comparison, run: Run) -> list[str]:
    """Returns the cells of one table row."""
    figures = run.stats.to_dict()
    return [
        run.setting.label,
        verdict(run),
        _number(_each(figures["rounds"], run), ".2f"),
        _number(_each(figures["global_passes"], run), ".2f"),
        _number(_each(_weights(run) / 1e6, run), ".2f", " M"),
        _number(figures["bytes_per_second"], ".0f"),
        _number(comparison.speed(run), ".2f", "x"),
    ]


def closing(comparison: Comparison, platform: str) -> str:
    """Explains in words what the table shows.

    Args:
      comparison: the outputs of all settings.
      platform: name of JAX's platform, such as "cpu".
    """
    best, plain = comparison.runs[0], comparison.plain
    same = "the same bytes as" if best.same else "the bytes of"
    told = (
        f"{best.setting.label} writes {same} plain decoding in {best.stats.rounds} rounds instead "
        f"of {plain.stats.rounds}."
    )
    if _weights(best) >= _weights(plain) and best.stats.patches:
        told += (
            " It reads no fewer weights here: its drafts are passes of the local decoder, which is "
            "small beside the global transformer of a large BLT and not of this one."
        )
    if platform == "cpu":
        told += (
            " This is a processor, where the time of a pass grows with the bytes in it, so that "
            "checking drafts is not free. On an accelerator a pass over a few bytes takes the time "
            "to read its weights once: rounds and weights decide there."
        )
    return told


def _weights(run: Run) -> float:
    """Number of weights that all passes of a run read."""
    return run.stats.bandwidth_gb_with_patcher * 1e9 / calculator.BYTES_PER_WEIGHT


def verdict(run: Run) -> str:
    """Returns in words whether the output is that of plain decoding."""
    if run.same:
        return "identical"
    if run.lossless:
        return "DIFFERS" if any(run.padded_differs) else "same but rounding"
    same = sum(place is None for place in run.first_difference)
    return f"its own ({same} of {len(run.results)} same)" if same else "its own"


def summary(run: Run, index: int) -> str:
    """Returns the passes and the acceptance rate of one prompt in words."""
    stats = run.results[index].stats
    figures = stats.to_dict()
    encoder = stats.encoder_passes + stats.draft_encoder_passes
    line = f"{stats.bytes} bytes, {stats.decoder_passes} decoder"
    if encoder:
        line += f", {encoder} encoder, {stats.global_passes} global"
    line += " passes"
    if run.lossless and figures["acceptance"] is not None:
        line += f", {figures['acceptance']:.0%} accepted"
    place = run.first_difference[index]
    if place is not None:
        line += f", not plain decoding's from byte {place} on"
        if run.lossless and not run.padded_differs[index]:
            line += " (rounding: the same as plain decoding in windows as wide)"
    return line


def _each(number: float, run: Run) -> float | None:
    return number / run.stats.bytes if run.stats.bytes else None


def _number(value, spec, unit=""):
    return "-" if value is None else f"{value:{spec}}{unit}"
