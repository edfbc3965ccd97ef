"""A decoding method beside plain decoding, alternating in one process: what the studies share."""

import gzip
import pathlib
import statistics
from collections.abc import Sequence

from bytelax import generate
from bytelax.model import Model


def prompts(data: str, count: int, length: int = 256) -> list[bytes]:
    """Stretches of held-out prose and code, as many bytes each."""
    texts = [
        gzip.decompress(pathlib.Path(f"{data}/{name}/valid.txt.gz").read_bytes())
        for name in ("openstax_ccby", "code_stdlib")
    ]
    stride = min(map(len, texts)) // (count // 2 + 1)
    return [texts[i % 2][(i // 2) * stride :][:length] for i in range(count)]


def measure(
    model: Model,
    texts: Sequence[bytes],
    method: str,
    settings: dict,
    *,
    new: int,
    repeats: int,
    temperature: float = 0.0,
) -> dict:
    """Figures summed over the prompts, each run alone: batch 1.

    `speed` is the median ratio of neighbouring runs, plain over method; `decode_speed` the same
    without the time that taking in the prompt took.
    """

    def run(method, settings, texts):
        out = [
            generate(
                model, [text], method=method, max_new_bytes=new, allow_eos=False,
                temperature=temperature, seeds=seed, **settings,
            )
            for seed, text in enumerate(texts)
        ]  # fmt: skip
        seconds = sum(o.stats.seconds for o in out)
        return out, seconds, seconds - sum(o.stats.prefill_seconds for o in out)

    run(method, settings, texts[:1])  # compiles
    ratios, decode_ratios, times, decode_times = [], [], [], []
    for _ in range(repeats):
        plain, whole, decoding = run("ar", {}, texts)
        out, own_whole, own_decoding = run(method, settings, texts)
        ratios.append(whole / own_whole)
        decode_ratios.append(decoding / own_decoding)
        times.append(own_whole)
        decode_times.append(own_decoding)
    total = {}
    for o in out:
        for name, value in o.stats.to_dict().items():
            if isinstance(value, int | float):
                total[name] = total.get(name, 0) + value
    by_place = [
        [sum(column) for column in zip(*(getattr(o.stats, name) for o in out), strict=True)]
        for name in ("accepted_by_position", "drafted_by_position")
    ]
    return {
        "method": method,
        **{name: value for name, value in settings.items() if name != "draft_model"},
        "acceptance": total["accepted"] / total["drafted"] if total["drafted"] else None,
        "acceptance_by_position": [a / d if d else None for a, d in zip(*by_place, strict=True)],
        "bytes_per_round": total["bytes"] / total["rounds"],
        **{
            name: total[name] / len(texts)
            for name in (
                "rounds", "decoder_passes", "encoder_passes", "global_passes", "patcher_passes",
                "draft_model_passes", "bandwidth_gb", "bandwidth_gb_with_patcher", "patches",
            )
        },
        "bytes_per_second": total["bytes"] / statistics.median(times),
        "decode_bytes_per_second": total["bytes"] / statistics.median(decode_times),
        "speed": statistics.median(ratios),
        "decode_speed": statistics.median(decode_ratios),
        "decode_speed_range": [min(decode_ratios), max(decode_ratios)],
        "same_outputs": sum(a.bytes == b.bytes for a, b in zip(plain, out, strict=True)),
        "lossless": out[0].lossless,
    }  # fmt: skip
