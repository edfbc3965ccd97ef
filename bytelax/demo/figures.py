"""The figures of a run in words, shared by the terminal and the page."""

from bytelax.demo.comparison import Comparison, Run

COLUMNS = (
    "method", "bytes/s", "speed", "accepted", "bytes a round", "decoder", "encoder", "global",
    "output",
)  # fmt: skip


def row(comparison: Comparison, run: Run) -> list[str]:
    """Returns the cells of one table row. Passes are sums over all prompts."""
    figures = run.stats.to_dict()
    return [
        run.setting.label,
        _number(figures["bytes_per_second"], ".0f"),
        _number(comparison.speed(run), ".2f", "x"),
        _number(figures["acceptance"] if run.lossless else None, ".0%"),
        _number(figures["bytes_per_round"], ".2f"),
        str(figures["decoder_passes"]),
        str(figures["encoder_passes"] + figures["draft_encoder_passes"]),
        str(figures["global_passes"]),
        verdict(run),
    ]


def verdict(run: Run) -> str:
    """Returns in words whether the output is that of plain decoding."""
    if run.same:
        return "same"
    if run.lossless:
        return "DIFFERS" if any(run.padded_differs) else "same but for rounding"
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


def _number(value, spec, unit=""):
    return "-" if value is None else f"{value:{spec}}{unit}"
