"""Do fewer passes write more repetitive text? The type-token ratio against decoder passes.

    python -m experiments.quality.diversity.run

As in Fast BLT's section 6: BLT-D writes without verification from next to nothing, over bounds of
entropy and top-p; words are what stands between white space. Plain decoding at each top-p is the
end of the scale. The prompt is a line end, as there is no text without a first byte. Nonsense is
varied, too: beside the ratio stand the bits per byte that a plain model of the same data gives the
text.
"""

from bytelax import generate, load
from experiments.harness import evidence, intervals, study

MINUTES = 10
# Published up to 1.2; a small model is less sure of its blocks.
GAMMAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
TOP_PS = (0.9, 1.0)
PROMPT = b"\n"


def type_token_ratio(text):
    """Different words among all words; a text without words has none."""
    words = text.split()
    return len(set(words)) / len(words) if words else 0.0


def measure(model, judge, setting, options):
    out = generate(
        model, [PROMPT] * options.samples, max_new_bytes=options.new, temperature=1.0,
        seeds=0, allow_eos=False, **setting,
    )  # fmt: skip
    ratios = [type_token_ratio(text) for text in out.bytes]
    return {
        "type_token_ratio": sum(ratios) / len(ratios),
        "range": [min(ratios), max(ratios)],
        "bits_per_byte": evidence.bits_per_byte(judge, [PROMPT] * options.samples, out.results),
        "words": sum(len(text.split()) for text in out.bytes) / len(ratios),
        "decoder_passes": out.stats.decoder_passes / len(ratios),
        "bytes_per_pass": out.stats.bytes / out.stats.decoder_passes,
    }


def main():
    options = study.parser(__doc__, __file__)
    options.add_argument("--samples", type=int, default=8)
    options.add_argument("--new", type=int, default=512, help="bytes of a sample")
    options.add_argument("--block-size", type=int, default=8)
    options.add_argument("--judge", default="tiny", help="a plain model that scores the samples")
    options = options.parse_args()
    model, judge = (load(name, dtype="float32") for name in (options.model, options.judge))
    blocks = {"method": "blt-d", "block_size": options.block_size, "unmask": "entropy"}
    settings = [
        {**blocks, "gamma": gamma, "top_p": top_p} for gamma in GAMMAS for top_p in TOP_PS
    ] + [{"method": "ar", "top_p": top_p} for top_p in TOP_PS]
    study.run(
        options.results / "results.json",
        {"model": options.model, "judge": options.judge, "samples": options.samples,
         "new": options.new},
        settings[:1] if options.smoke else settings,
        lambda setting: measure(model, judge, setting, options),
        markdown=markdown,
        timed=False,
    )  # fmt: skip


def markdown(report):
    header = (
        "method", "gamma", "top-p", "decoder passes", "bytes/pass", "type-token ratio", "range",
        "bits per byte", "words",
    )  # fmt: skip
    rows = [
        (
            row["setting"]["method"],
            row["setting"].get("gamma"),
            row["setting"]["top_p"],
            f"{row['decoder_passes']:.0f}",
            f"{row['bytes_per_pass']:.2f}",
            f"{row['type_token_ratio']:.3f}",
            f"{row['range'][0]:.2f} to {row['range'][1]:.2f}",
            intervals.shown(row["bits_per_byte"]),
            f"{row['words']:.0f}",
        )
        for row in report["rows"]
    ]
    return "\n".join(
        [
            "# Diversity against decoder passes",
            "",
            f"`{report['model']}`, {report['samples']} samples of {report['new']} bytes, "
            f"temperature 1, {study.machine(report)}. Passes are means of a sample. Bits "
            f"per byte: of the text under `{report['judge']}`, with 95 % intervals over "
            "samples. Published, for other models: the ratio rises with the passes.",
            "",
            *study.table(header, rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
