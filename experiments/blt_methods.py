"""Fast BLT's tables on a trained model, with what the paper left out: bytes a second.

    python experiments/blt_methods.py --data DIR

For every method and setting: passes, acceptance, the paper's bandwidth formula, and the wall clock
beside plain decoding at W = 1 with caches. Runs of a method alternate with runs of plain decoding
in one process; speeds are medians of the ratios of neighbours.
"""

import argparse
import gzip
import json
import os
import pathlib
import platform
import statistics

import jax

from bytelax import generate, load

SETTINGS = [
    *(
        ("blt-s", {"draft_length": k, "latent": latent})
        for latent in ("reuse", "refresh")
        for k in (4, 8, 16)
    ),
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


def prompts(data, count, length=256):
    """Stretches of held-out prose and code, as many bytes each."""
    texts = [
        gzip.decompress(pathlib.Path(f"{data}/{name}/valid.txt.gz").read_bytes())
        for name in ("openstax_ccby", "code_stdlib")
    ]
    stride = min(map(len, texts)) // (count // 2 + 1)
    return [texts[i % 2][(i // 2) * stride :][:length] for i in range(count)]


def run(model, texts, options, method, settings):
    out = [
        generate(
            model, [text], method=method, max_new_bytes=options.new, allow_eos=False,
            temperature=options.temperature, seeds=seed, **settings,
        )
        for seed, text in enumerate(texts)
    ]  # fmt: skip
    return out, sum(o.stats.seconds for o in out)


def measure(model, texts, options, method, settings):
    """Figures summed over the prompts, each run alone: batch 1."""
    run(model, texts[:1], options, method, settings)  # compiles
    ratios, times = [], []
    for _ in range(options.repeats):
        plain, before = run(model, texts, options, "ar", {})
        out, seconds = run(model, texts, options, method, settings)
        ratios.append(before / seconds)
        times.append(seconds)
    total = {}
    for o in out:
        for name, value in o.stats.to_dict().items():
            if isinstance(value, int | float):
                total[name] = total.get(name, 0) + value
    places = [o.stats for o in out]
    by_place = [
        [sum(column) for column in zip(*(getattr(s, name) for s in places), strict=True)]
        for name in ("accepted_by_position", "drafted_by_position")
    ]
    same = sum(a.bytes == b.bytes for a, b in zip(plain, out, strict=True))
    return {
        "method": method,
        **settings,
        "acceptance": total["accepted"] / total["drafted"] if total["drafted"] else None,
        "acceptance_by_position": [a / d if d else None for a, d in zip(*by_place, strict=True)],
        "bytes_per_round": total["bytes"] / total["rounds"],
        **{
            name: total[name] / len(texts)
            for name in (
                "rounds", "decoder_passes", "encoder_passes", "global_passes", "patcher_passes",
                "bandwidth_gb", "bandwidth_gb_with_patcher", "patches",
            )
        },
        "bytes_per_second": total["bytes"] / statistics.median(times),
        "speed": statistics.median(ratios),
        "same_outputs": same,
        "lossless": out[0].lossless,
    }  # fmt: skip


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
    texts = prompts(options.data, options.prompts)
    rows = [measure(model, texts, options, "ar", {})]
    print(rows[0], flush=True)
    for method, settings in SETTINGS:
        if not options.only or method in options.only:
            rows.append(measure(model, texts, options, method, settings))
            print(rows[-1], flush=True)
    report = {
        "prompts": len(texts), "prompt_bytes": 256, "new_bytes": options.new,
        "temperature": options.temperature, "repeats": options.repeats,
        "machine": f"{platform.machine()}, {os.cpu_count()} threads", "jax": jax.__version__,
        "load_average": os.getloadavg()[0], "rows": rows,
    }  # fmt: skip
    options.results.mkdir(exist_ok=True)
    (options.results / f"{options.name}.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.results / f"{options.name}.md").write_text(markdown(report))


def markdown(report):
    plain = report["rows"][0]
    lines = [
        "# The methods of Fast BLT, measured",
        "",
        f"{report['prompts']} held-out prompts of {report['prompt_bytes']} bytes, "
        f"{report['new_bytes']} new bytes, batch 1, temperature {report['temperature']}, float32, "
        f"{report['machine']}, jax {report['jax']}, load average {report['load_average']:.1f}. "
        f"Speed: median of {report['repeats']} ratios to plain decoding beside it.",
        "",
        "| method | setting | accepted % | bytes/round | decoder | encoder | global | GB | "
        "decrease % | bytes/s | speed | same output |",
        "|---" * 12 + "|",
    ]
    for row in report["rows"]:
        known = ("block_size", "draft_length", "latent", "unmask", "alpha", "gamma", "open_patch")
        setting = ", ".join(f"{k} {row[k]}" for k in known if k in row)
        accepted = "" if row["acceptance"] is None else f"{100 * row['acceptance']:.1f}"
        less = 100 * (1 - row["bandwidth_gb"] / plain["bandwidth_gb"])
        lines.append(
            f"| {row['method']} | {setting} | {accepted} | {row['bytes_per_round']:.2f} | "
            f"{row['decoder_passes']:.0f} | {row['encoder_passes']:.0f} | "
            f"{row['global_passes']:.0f} | {row['bandwidth_gb']:.3f} | {less:.1f} | "
            f"{row['bytes_per_second']:.0f} | {row['speed']:.2f} | "
            f"{row['same_outputs']}/{report['prompts']} |"
        )
    patch = plain["bytes_per_round"] * plain["rounds"] / plain["patches"]
    lines += ["", f"Plain decoding closed a patch every {patch:.2f} bytes.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
