"""Fast BLT's tables on a trained model, with what the paper left out: bytes a second.

    python experiments/blt_methods.py --data DIR

For every method and setting: passes, acceptance, the paper's bandwidth formula, and the wall clock
beside plain decoding at W = 1 with caches. Runs of a method alternate with runs of plain decoding
in one process; speeds are medians of the ratios of neighbours.
"""

import argparse
import json
import os
import pathlib
import platform

import jax
import side_by_side

from bytelax import load, programs

SETTING = (
    "block_size", "draft_length", "draft_layers", "latent", "unmask", "alpha", "gamma", "open_patch"
)  # fmt: skip
SETTINGS = [
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--new", type=int, default=256, help="bytes generated a prompt")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--only", nargs="*", help="methods")
    parser.add_argument("--name", default="blt_methods")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("experiments/results"))
    options = parser.parse_args()
    model = load(options.model, dtype="float32")
    texts = side_by_side.prompts(options.data, options.prompts)
    path = options.results / f"{options.name}.json"
    report = {
        "model": options.model, "prompts": len(texts), "prompt_bytes": 256,
        "new_bytes": options.new, "temperature": options.temperature, "repeats": options.repeats,
        "machine": f"{platform.machine()}, {os.cpu_count()} threads", "jax": jax.__version__,
    }  # fmt: skip
    rows = []
    if path.exists():  # an interrupted study goes on
        known = json.loads(path.read_text())
        if {name: known.get(name) for name in report} == report:
            rows = known["rows"]
    done = [(row["method"], {k: row[k] for k in SETTING if k in row}) for row in rows]
    options.results.mkdir(exist_ok=True)
    for method, settings in [("ar", {}), *SETTINGS]:
        wanted = method == "ar" or not options.only or method in options.only
        if not wanted or (method, settings) in done:
            continue
        rows.append(
            side_by_side.measure(
                model, texts, method, settings,
                new=options.new, repeats=options.repeats, temperature=options.temperature,
            )
        )  # fmt: skip
        print(rows[-1], flush=True)
        report |= {"load_average": os.getloadavg()[0], "rows": rows}
        path.write_text(json.dumps(report, indent=1) + "\n")
        path.with_suffix(".md").write_text(markdown(report))
        # All programs together would need more memory maps than a process may have.
        programs.forget()
        jax.clear_caches()


def markdown(report):
    plain = report["rows"][0]
    lines = [
        "# The methods of Fast BLT, measured",
        "",
        f"{report['prompts']} held-out prompts of {report['prompt_bytes']} bytes, "
        f"{report['new_bytes']} new bytes, batch 1, temperature {report['temperature']}, float32, "
        f"{report['machine']}, jax {report['jax']}, load average {report['load_average']:.1f}. "
        f"Speed: median of {report['repeats']} ratios to plain decoding beside it, taking in the "
        "prompt left out, and with it.",
        "",
        "| method | setting | accepted % | bytes/round | decoder | encoder | global | GB | "
        "decrease % | bytes/s | speed | with prompt | same output |",
        "|---" * 13 + "|",
    ]
    for row in report["rows"]:
        setting = ", ".join(f"{k} {row[k]}" for k in SETTING if k in row)
        accepted = "" if row["acceptance"] is None else f"{100 * row['acceptance']:.1f}"
        less = 100 * (1 - row["bandwidth_gb"] / plain["bandwidth_gb"])
        lines.append(
            f"| {row['method']} | {setting} | {accepted} | {row['bytes_per_round']:.2f} | "
            f"{row['decoder_passes']:.0f} | {row['encoder_passes']:.0f} | "
            f"{row['global_passes']:.0f} | {row['bandwidth_gb']:.3f} | {less:.1f} | "
            f"{row['decode_bytes_per_second']:.0f} | {row['decode_speed']:.2f} | "
            f"{row['speed']:.2f} | "
            f"{row['same_outputs']}/{report['prompts']} |"
        )
    patch = plain["bytes_per_round"] * plain["rounds"] / plain["patches"]
    lines += ["", f"Plain decoding closed a patch every {patch:.2f} bytes.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
