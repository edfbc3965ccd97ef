"""Fast BLT's tables on a trained model, with what the paper left out: bytes a second.

    python -m experiments.speed.blt_methods.run --data DIR

For every method and setting: passes, acceptance, the paper's bandwidth formula, and the wall clock
beside plain decoding at W = 1 with caches. Runs of a method alternate with runs of plain decoding
in one process; speeds are medians of the ratios of neighbours. `results.json` is greedy,
`sampled.json` at temperature 1, where the lossless methods alone are measured.
"""

from bytelax import load
from experiments.harness import side_by_side, speed_table, study

MINUTES = 65
# For each file of results: the temperature, and the methods; None for all of them.
RUNS = {study.MAIN: (0.0, None), "sampled": (1.0, ("ar", "blt-s", "blt-dv"))}
RESULTS = tuple(RUNS)
SETTINGS = [
    ("ar", {}),
    *(
        ("blt-s", {"draft_length": k, "latent": latent})
        for latent in ("reuse", "refresh")
        for k in (4, 8, 16)
    ),
    *(("blt-s", {"draft_length": k, "draft_layers": 1}) for k in (4, 8, 16)),
    *(
        (method, {"block_size": size, **rule})
        for size in (4, 8, 16)
        for method, rules in (
            (
                "blt-d",
                (
                    {"unmask": "confidence", "alpha": 0.5},
                    {"unmask": "confidence", "alpha": 0.7},
                    {"unmask": "entropy", "gamma": 0.8},
                    {"unmask": "entropy", "gamma": 1.0},
                    {"unmask": "entropy-minus-max", "gamma": 1.0},
                    {"unmask": "one-step"},
                ),
            ),
            (
                "blt-dv",
                (
                    {"unmask": "confidence", "alpha": 0.3},
                    {"unmask": "entropy", "gamma": 1.5},
                    {"unmask": "entropy", "gamma": 2.0},
                    {"unmask": "one-step"},
                    {"unmask": "one-step", "latent": "refresh"},
                ),
            ),
        )
        for rule in rules
    ),
    *(
        ("blt-d", {"block_size": 8, "unmask": "confidence", "alpha": 0.7, "open_patch": how})
        for how in ("truncated", "finish")
    ),
]


def main():
    options = study.parser(__doc__, __file__)
    options.add_argument("--prompts", type=int, default=4)
    options.add_argument("--new", type=int, default=192, help="bytes generated a prompt")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--only", nargs="*", default=RESULTS, choices=RESULTS)
    options = options.parse_args()
    model = load(options.model, dtype="float32")
    texts = side_by_side.prompts(options.data, options.prompts)
    for name in options.only:
        temperature, methods = RUNS[name]
        how = {"new": options.new, "repeats": options.repeats, "temperature": temperature}
        settings = [
            {"method": method, **chosen}
            for method, chosen in SETTINGS
            if methods is None or method in methods
        ]
        study.run(
            options.results / f"{name}.json",
            {"model": options.model, "prompts": len(texts), "prompt_bytes": 256, **how},
            settings[:2] if options.smoke else settings,
            lambda setting, how=how: measure(model, texts, setting, how),
            markdown=markdown,
        )


def measure(model, texts, setting, how):
    """A row of the table."""
    method, chosen = setting["method"], {k: v for k, v in setting.items() if k != "method"}
    return side_by_side.measure(model, texts, method, chosen, **how)


def headline(report):
    return speed_table.best_settings(report)


def markdown(report):
    plain = report["rows"][0]
    patch = plain["bytes_per_round"] * plain["rounds"] / plain["patches"]
    header = (
        "method", "setting", "accepted %", "bytes/round", "decoder", "encoder", "global", "GB",
        "decrease %", "bytes/s", "speed", "range", "with prompt", "same output",
    )  # fmt: skip
    rows = []
    for row in report["rows"]:
        setting = dict(row["setting"])
        low, high = row["decode_speed_range"]
        rows.append(
            (
                setting.pop("method"),
                side_by_side.named(setting),
                None if row["acceptance"] is None else f"{100 * row['acceptance']:.1f}",
                f"{row['bytes_per_round']:.2f}",
                *(f"{row[f'{part}_passes']:.0f}" for part in ("decoder", "encoder", "global")),
                f"{row['bandwidth_gb']:.3f}",
                f"{100 * (1 - row['bandwidth_gb'] / plain['bandwidth_gb']):.1f}",
                f"{row['decode_bytes_per_second']:.0f}",
                f"{row['decode_speed']:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{row['speed']:.2f}",
                f"{row['same_outputs']}/{report['prompts']}",
            )
        )
    return "\n".join(
        [
            "# The methods of Fast BLT, measured",
            "",
            f"{report['prompts']} held-out prompts of {report['prompt_bytes']} bytes, "
            f"{report['new']} new bytes, batch 1, temperature {report['temperature']}, "
            f"{study.machine(report)}. Speed: median of {report['repeats']} ratios to plain "
            "decoding (W = 1, with caches) beside it, taking in the prompt left out; with prompt: "
            "with it. Passes and gigabytes are means of a prompt.",
            "",
            *study.table(header, rows),
            "",
            f"Plain decoding closed a patch every {patch:.2f} bytes.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
