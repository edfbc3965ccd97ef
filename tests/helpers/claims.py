"""What pages say in numbers, each a fragment of a page formatted from a file of results.

Whoever measures anew or words a sentence anew finds here what else has to change.
"""

import json
import math
import re

from experiments.compile.rounds import latents, reckoned
from experiments.compile.rounds import run as rounds
from experiments.harness import (
    evidence,
    intervals,
    published_claims,
    published_fast_blt,
    trained,
)
from experiments.quality.rule_tasks import run as rule_tasks
from experiments.quality.translation import run as translation
from experiments.speed.block_table import run as block_table
from experiments.training.draft_curve.train import SEEDS
from tests.helpers import pages

README, SPEED, DRAFTERS = "README.md", "docs/speed.md", "docs/drafters_measured.md"
SELF_DRAFTING = "docs/self_drafting.md"
FAST_BLT, EXPERIMENTS, BLT = "docs/fast_blt.md", "experiments/README.md", "docs/blt.md"
TRAINING, QUANTIZATION, PODS = "docs/training_blt.md", "docs/quantization.md", "docs/pods.md"
KERNELS, REQUESTS = "docs/kernels.md", "docs/requests.md"
DV = "blt-dv 8, one step"
# What the pages call processors, and how a report names their machines.
PROCESSORS = {"Xeon": "(amx_tile), 2 threads, compiled", "EPYC": "(avx512f), 2 threads, compiled"}


def report(study: str, name: str = "results") -> dict:
    return json.loads((pages.ROOT / "experiments" / study / f"{name}.json").read_text())


def row(found: dict, **setting) -> dict:
    """The one row that was measured with this setting."""
    (only,) = [each for each in found["rows"] if setting.items() <= each["setting"].items()]
    return only


def beside_transformers():
    here, elsewhere = (found["rows"] for _, found in on_both("speed/vs_peers"))
    times = [each["ratio"]["median"] for each in here if each["setting"]["contest"] == "blt"]
    yield README, f"is {min(times):.0f} to {max(times):.0f} times as fast as in transformers"
    for each, other in zip(here, elsewhere, strict=True):
        if each["setting"]["contest"] == "blt":
            ratios = (
                "{median:.0f} ({lowest:.0f} to {highest:.0f})".format(**own["ratio"])
                for own in (each, other)
            )
            yield (
                SPEED,
                f"| {each['setting']['context']} | {each['transformers_ms']:.1f} | "
                f"{each['bytelax_ms']:.2f} | {' | '.join(ratios)} |",
            )


def bytes_a_round(each: dict) -> dict:
    """At temperature 0 loops are left out; sampled text hardly ever loops."""
    greedy = not each["setting"]["temperature"]
    return each["bytes_per_round_without_loops" if greedy else "bytes_per_round"]


def several_rows():
    """Drafts at 16 rows, beside the plain decoding that is best there."""
    found = report("speed/batch")

    def speeds(model, name):
        both = (row(found, model=model, temperature=t, batch=16)["methods"] for t in (0.0, 1.0))
        return " and ".join(f"{each[name]['decode_speed']:.2f}" for each in both)

    yield SPEED, f"the two-byte head of `tiny-lm` is faster ({speeds('tiny-lm', 'two-byte')})"
    faster = {
        (each["setting"]["batch"], each["setting"]["model"], name)
        for each in found["rows"]
        for name, own in each["methods"].items()
        if own["lossless"] and own["decode_speed"] > 1
    }
    assert faster == {(16, "tiny-lm", "two-byte")}, "both pages say that nothing else is"
    short = [
        row(report("speed/latents", "batches"), rows=64, temperature=t)["ways"]["stale, 2 bytes"]
        for t in (0.0, 1.0)
    ]
    yield SPEED, "by `blt-s` ({} and {})".format(*(f"{each['speed'][0]:.2f}" for each in short))
    yield SPEED, f"`blt-s` with 8 bytes on `tiny` is at {speeds('tiny', 'blt-s 8')}"
    yield SPEED, f"`eagle` with 8 bytes on `tiny` {speeds('tiny', 'eagle 8')}"
    yield SPEED, f"the draft model of `tiny-lm` {speeds('tiny-lm', 'draft-model 4')}"
    yield FAST_BLT, f"At 16 rows `blt-dv` with blocks of 8 is at {speeds('tiny-d', DV)}"


def small_models():
    """What the best drafters of the bundled models gain, on either processor."""
    found = [own for _, own in on_both("speed/precisions")]
    for said, model, method, how in (
        ("`tiny-lm`, draft model, 4 bytes", "tiny-lm", "draft-model", {"draft_length": 4}),
        ("`tiny-lm`, multi-byte heads", "tiny-lm", "medusa", {}),
        ("`tiny-lm`, `eagle`, 4 bytes", "tiny-lm", "eagle", {"draft_length": 4}),
        ("`tiny`, `eagle`, 8 bytes", "tiny", "eagle", {"draft_length": 8}),
        ("`tiny`, `blt-s`, 4 bytes", "tiny", "blt-s", {"draft_length": 4}),
    ):
        how = {"model": model, "method": method, **how}
        here, *others = (
            [row(own, dtype=dtype, temperature=t, **how) for t in (0.0, 1.0)]
            for own in found
            for dtype in ("float32", "bfloat16")
        )
        kept = " and ".join(f"{bytes_a_round(each)['value']:.1f}" for each in here)
        speeds = [
            " and ".join(f"{each['decode_speed']:.2f}" for each in both) for both in (here, *others)
        ]
        yield SPEED, f"| {said} | {kept} | {' | '.join(speeds)} |"
        if method == "draft-model":
            wide, _, elsewhere, _ = speeds
            yield README, f"| draft model, 4 bytes | Xeon | {wide.replace(' and ', ' | ')} | |"
            yield README, f"draft model is at {elsewhere}"
    loops = [row(found[0], dtype="float32", temperature=0.0, model=model, method="eagle",
                 draft_length=4)["loops"] for model in ("tiny-lm", "tiny")]  # fmt: skip
    yield SPEED, "({} of 64 with `tiny-lm`, {} with `tiny`)".format(*loops)


def five_claims_of_the_readme():
    rows = {claim: cells for _, claim, *cells in published_claims.rows(pages.ROOT / "experiments")}
    for claim in (
        "below half a bit they agree",
        "BLT-DV restores the quality",
        "BLT-S with 8 bytes is accepted",
        "BLT-D with blocks of 4 is nearly BLT",
        "an EAGLE layer keeps six bytes a round",
    ):
        published, ours, holds, _ = rows[claim]
        yield README, f"| {published} | {ours} | {holds} |"


def published_beside_measured():
    for name, model, method, options in (
        ("`blt-s` of `tiny`", "tiny", "blt-s", {"draft_length": 8}),
        ("`blt-dv` of `tiny-d`, one step", "tiny-d", "blt-dv",
         {"block_size": 8, "unmask": "one-step"}),
    ):  # fmt: skip
        both = (of_a_blt(model, method, t, **options) for t in (0.0, 1.0))
        cells = [
            intervals.shown(each["acceptance_without_loops"], ".1f", times=100) for each in both
        ]
        published = published_fast_blt.shown(method, options)
        yield FAST_BLT, f"| {name} | {' | '.join(cells)} | {published} |"


def spans_of_decoders():
    found = report("training/decoder_window")

    def of(stage):
        own = row(found, stage=stage)
        kept = own["T=1"]["without loops"]["8"]
        return (
            100 * kept["acceptance"]["value"],
            kept["weights"]["value"],
            own["bits"]["stale_1"]["value"],
        )

    three, six = ([of(f"window{x}-layers{n}") for x in (8, 32, 128, 512)] for n in (3, 6))
    again = [of(f"window{x}-layers3-seed1")[0] for x in (8, 512)]
    kept, read, old = zip(*three, strict=True)
    yield FAST_BLT, "bytes, {:.0f}, {:.0f}, {:.0f} and {:.0f} % of drafts of 8".format(*kept)
    yield FAST_BLT, "costs {:.2f}, {:.2f}, {:.2f} and {:.2f} bits".format(*old)
    yield FAST_BLT, "second seed has {:.0f} and {:.0f} % at the two ends".format(*again)
    more = [each[1] for each in six]
    yield FAST_BLT, "read more: {:.2f}, {:.2f}, {:.2f} and {:.2f} of".format(*more)
    yield FAST_BLT, "three read {:.2f}, {:.2f}, {:.2f} and {:.2f}.".format(*read)


def table_of_drafters():
    """Drafters of the bundled BLTs, at one row."""
    loops = set()
    for name, model, method, options in (
        ("`blt-s`", "tiny", "blt-s", {"draft_length": 8}),
        ("`blt-s`, nested over heads", "tiny", "blt-s",
         {"draft_length": 8, "draft_with": "medusa"}),
        ("`eagle`", "tiny", "eagle", {"draft_length": 8}),
        ("`eagle`, confident", "tiny", "eagle", {"draft_length": 8, "min_survival": 0.3}),
        ("`medusa`", "tiny", "medusa", {}),
        ("draft model", "tiny", "draft-model", {"draft_length": 4}),
        ("`lookup`", "tiny", "lookup", {"draft_length": 8}),
        ("`blt-dv`, one step", "tiny-d", "blt-dv", {"block_size": 8, "unmask": "one-step"}),
    ):  # fmt: skip
        both = [of_a_blt(model, method, t, **options) for t in (0.0, 1.0)]
        plain = [of_a_blt(model, "ar", t) for t in (0.0, 1.0)]
        loops.add(both[0]["loops"])
        read = (
            f"{own['gb_per_byte']['value'] / other['gb_per_byte']['value']:.2f}"
            for own, other in zip(both, plain, strict=True)
        )
        cells = [
            name,
            *(intervals.shown(bytes_a_round(each)) for each in both),
            " / ".join(read),
            " / ".join(f"{each['decode_speed']:.2f}" for each in both),
        ]
        yield DRAFTERS, f"| {' | '.join(cells)} |"
    yield DRAFTERS, f"the {min(loops)} or {max(loops)} prompts whose continuation ends in a loop"


def of_a_blt(model: str, method: str, temperature: float, **options) -> dict:
    return evidence.of_a_blt(model=model, method=method, temperature=temperature, **options)


def turns_samples_and_constraints():
    found = report("speed/requests")
    yield REQUESTS, "On two threads of an Intel Xeon with AMX, appending"
    assert PROCESSORS["Xeon"] in found["machine"]

    def milliseconds(**setting):
        own = row(found, **setting)
        return f"{1e3 * own['seconds']:.0f}", f"{1e3 * own['beside']:.0f}"

    lm, blt = (milliseconds(what="turn", model=name, method="ar") for name in ("tiny-lm", "tiny"))
    yield REQUESTS, f"100 bytes to a text of 3,900 took {lm[0]} ms with `tiny-lm`, and"
    yield REQUESTS, f"prefilling all of it {lm[1]}; with `tiny` {blt[0]} and {blt[1]} ms"


def right_answers():
    groups = rule_tasks.over_seeds(report("quality/rule_tasks"))
    there = {shared["model"] for shared, _ in groups}

    def rows(**setting):
        (own,) = [rows for shared, rows in groups if shared == setting]
        return own

    def passes(own):
        return f"{rule_tasks.mean(own, 'decoder_passes'):.1f}"

    ways = {
        "`blt-dv`": {"method": "blt-dv", "unmask": "one-step"},
        "one byte per pass": {"method": "blt-d", **trained.ONE_BYTE},
        "entropy up to 1": {"method": "blt-d", "unmask": "entropy", "gamma": 1.0},
        "one step": {"method": "blt-d", "unmask": "one-step"},
    }
    for model, name in rule_tasks.MODELS.items():
        if model not in there:
            continue
        plain = rows(model=model, method="ar")
        shares = [rule_tasks.shown(plain, each) for each in ("exact_match", "ranked_first")]
        bits = rule_tasks.shown(plain, "bits_per_byte", ".4f", times=1)
        yield FAST_BLT, f"| {name} | {len(plain)} | {' | '.join(shares)} | {bits} |"
        for way, how in ways.items() if model.startswith("task-d") else ():
            found = [rows(model=model, block_size=k, **how) for k in trained.BLOCK_SIZES]
            cells = [f"{rule_tasks.shown(own, 'exact_match')}: {passes(own)}" for own in found]
            yield FAST_BLT, f"| {name}, {way} | {' | '.join(cells)} |"
    drafted = rows(model="task", method="blt-s", draft_length=4)
    right = rule_tasks.shown(drafted, "exact_match")
    yield FAST_BLT, f"`blt-s` of the base, with drafts of 4, is right in {right} %"
    control = passes(rows(model="task-more", method="ar"))
    yield FAST_BLT, f"plain decoding of the control takes {control}"


def bits_of_samples():
    found = report("quality/diversity")

    def bits(**setting):
        return f"{row(found, top_p=1.0, **setting)['bits_per_byte']['value']:.2f} bits per byte"

    yield FAST_BLT, f"(top-p 1) take {bits(method='ar')}"
    strict, loose = (bits(method="blt-d", gamma=gamma).split()[0] for gamma in (0.5, 16.0))
    yield (
        FAST_BLT,
        f"take {strict} with the strictest bound and one byte in a pass, and {loose} with",
    )


def drafts_of_a_byte_transformer():
    named = {
        "eagle, 4 bytes": {"method": "eagle", "draft_length": 4},
        "eagle, 8 bytes": {"method": "eagle", "draft_length": 8},
        "draft model, 4 bytes": {"method": "draft-model", "draft_length": 4},
        "medusa": {"method": "medusa"},
        "two-byte": {"method": "two-byte", "state_layer": 12},
        "lookup, 8 bytes": {"method": "lookup", "draft_length": 8},
        "early-exit, layer 3, 2 bytes": {
            "method": "early-exit",
            "exit_layer": 3,
            "draft_length": 2,
        },
        "composed, layer 6, 2 bytes": {"method": "composed", "exit_layer": 6, "draft_length": 2},
    }
    for name, setting in named.items():
        here, elsewhere = (
            [
                each
                for temperature in (0.0, 1.0)
                for each in found["rows"]
                if each["setting"] == setting | {"temperature": temperature}
            ]
            for _, found in on_both("speed/self_drafting")
        )
        cells = [
            *(intervals.shown(bytes_a_round(each)) for each in here),
            *(
                " / ".join(f"{each['decode_speed']:.2f}" for each in both)
                for both in (here, elsewhere)
            ),
        ]
        yield SELF_DRAFTING, f"| {name} | {' | '.join(cells)} |"
    yield SELF_DRAFTING, f"the {here[0]['loops']} greedy continuations that loop"


def what_does_not_pay():
    def speeds(found, method, option):
        own = [
            each
            for each in found["rows"]
            if each["setting"]["method"] == method and option in each["setting"]
        ]
        return [f"{each['decode_speed']:.2f}" for each in own], own

    for processor, found in on_both("speed/self_drafting"):
        faster = [each["decode_speed"] for each in found["rows"] if each["decode_speed"] > 1]
        more = f"{len(faster)} of {len(found['rows'])} settings are faster"
        yield SELF_DRAFTING, f"on the {processor} {more}, by at most {100 * max(faster) - 100:.0f}"
        skipped, _ = speeds(found, "layer-skip", "skip_mlp")
        yield SELF_DRAFTING, f"{' and '.join(skipped)} on the {processor}"
        sampled, rows = speeds(found, "spectr", "drafts")
        kept = "{:.2f}, {:.2f} and {:.2f}".format(*(bytes_a_round(each)["value"] for each in rows))
        if processor == "Xeon":
            yield SELF_DRAFTING, f"keeps {kept} bytes per round"
        yield SELF_DRAFTING, "{}, {} and {} on the {}".format(*sampled, processor)


def drafts_of_the_decoder():
    def rows(length, **more):
        return [of_a_blt("tiny", "blt-s", t, draft_length=length, **more) for t in (0.0, 1.0)]

    def keeps(length, **more):
        return [f"{bytes_a_round(each)['value']:.2f}" for each in rows(length, **more)]

    at_0, at_1 = zip(*map(keeps, (4, 8, 16)), strict=True)
    yield (
        FAST_BLT,
        f"drafts of 4, 8 and 16: {at_0[0]}, {at_0[1]} and {at_0[2]} at temperature 0, {at_1[0]}, "
        f"{at_1[1]} and {at_1[2]} at temperature 1",
    )
    refreshed = keeps(8, latent="refresh")
    yield (
        FAST_BLT,
        f"{refreshed[0]} bytes in place of {at_0[1]}, and {refreshed[1]} in place of {at_1[1]}",
    )
    (slow, slow_1), (fast, fast_1) = (
        [f"{each['decode_speed']:.2f}" for each in rows(8, **more)]
        for more in ({"latent": "refresh"}, {})
    )
    yield (
        FAST_BLT,
        f"{slow} times plain decoding in place of {fast}, and {slow_1} in place of {fast_1}",
    )


def blocks_on_the_bundled_models():
    """What block diffusion keeps, spends and gains on `tiny-d`."""
    rows = report("speed/blt_methods")["rows"]

    def of(figure, digits, method, unmask, **how):
        setting = {"method": method, "unmask": unmask, **how}
        found = [figure(each) for each in rows if setting.items() <= each["setting"].items()]
        return [f"{own(found):.{digits}f}" for own in (min, max)]

    def kept(each):
        return bytes_a_round(each)["value"]

    def passes(each):
        return each["decoder_passes_per_byte"]["value"]

    low, high = of(kept, 1, "blt-dv", "one-step")
    yield FAST_BLT, f"keeps {low} to {high} bytes per round if it drafts in one step"
    _, most = of(kept, 1, "blt-dv", "confidence")
    low, high = of(passes, 1, "blt-dv", "confidence")
    yield FAST_BLT, f"keeps up to {most} and spends {low} to {high} decoder passes per byte"
    spent = [of(passes, 2, "blt-d", unmask) for unmask in ("confidence", "entropy")]
    low, high = min(each[0] for each in spent), max(each[1] for each in spent)
    yield FAST_BLT, f"({low} to {high} decoder passes per byte)"
    low, high = of(lambda each: each["loops"], 0, "blt-d", "one-step", temperature=0.0)
    yield FAST_BLT, f"it writes loops for {low} to {high} of the 64 prompts"
    low, high = of(lambda each: each["decode_speed"], 1, "blt-d", "one-step")
    yield FAST_BLT, f"**BLT-D in one step is {low} to {high} times as fast as plain decoding**"


def windows():
    """What passes of the published shape take, whatever the prompts."""
    shares, costs, gains = zip(
        *(
            (
                f"{100 * passes['from the exit']['8'] / passes['whole']['8']:.0f} %",
                f"{passes['whole']['16'] / passes['whole']['1']:.1f}",
                f"{passes['no cache'] / passes['whole']['1']:.0f}",
            )
            for machine in PROCESSORS.values()
            for passes in [
                row(on(machine, "speed/self_drafting", "windows"), model="85M")["seconds"]
            ]
        ),
        strict=True,
    )
    yield SELF_DRAFTING, f"takes {shares[0]} of the time of a whole window at eight bytes"
    yield SELF_DRAFTING, f"{shares[1]} on the EPYC"
    yield (
        SELF_DRAFTING,
        f"costs as much as {costs[0]} passes of one byte, and {costs[1]} on the EPYC",
    )
    yield (
        SELF_DRAFTING,
        f"make a byte {gains[0]} times faster after 512 bytes, and {gains[1]} times on the EPYC",
    )


def on(machine: str, study: str, name: str = "results") -> dict:
    """The report of a study on a machine, whichever it ran on last."""
    paths = (pages.ROOT / "experiments" / study).glob(f"{name}*.json")
    (found,) = [own for path in paths if machine in (own := report(study, path.stem))["machine"]]
    return found


def on_both(study: str):
    """The reports of a study on either processor."""
    for processor, machine in PROCESSORS.items():
        yield processor, on(machine, study)


def outputs_of_lossless_methods():
    found = report("quality/exactness")
    same = min(each["bitwise_equal_alone"] for each in found["rows"])
    yield README, f"[{same} of {found['prompts']} outputs](experiments/quality/exactness/README.md)"
    yield README, f"in each of {len(found['rows'])} settings"


def price_of_a_round():
    for processor, found in on_both("speed/windows"):
        costs = [
            " and ".join(
                f"{row(found, shape=shape, window=window)['ways']['drafted']['in_bytes']:.1f}"
                for window in (9, 17)
            )
            for shape in ("tiny", "35M", "100M")
        ]
        yield SPEED, f"| {processor} | {' | '.join(costs)} |"


def compiled_kernels():
    for dtype in ("float32", "bfloat16"):
        gains = [
            each["plain_speed"][0]
            for _, found in on_both("speed/native")
            for each in found["rows"]
            if each["setting"]["dtype"] == dtype
        ]
        yield SPEED, f"{min(gains):.1f} to {max(gains):.1f} times as fast in {dtype}"
    byte, narrow, wide = (
        [
            f"{row(found, model=model, dtype=dtype)['ms']['compiled/plain']:.2f}"
            for _, found in on_both("speed/native")
        ]
        for model, dtype in (("tiny-lm", "float32"), ("tiny", "bfloat16"), ("tiny", "float32"))
    )
    yield SELF_DRAFTING, "takes {} ms on the Xeon and {} on the EPYC".format(*byte)
    for at, where in enumerate(("on a Xeon with AMX", "on an EPYC with AVX512-BF16")):
        yield (
            QUANTIZATION,
            f"{narrow[at]} ms per byte in bfloat16 and {wide[at]} in float32 {where}",
        )
    for processor, found in on_both("speed/native"):
        named = {"Xeon": "Xeon with AMX", "EPYC": "EPYC with AVX512-BF16"}[processor]
        for dtype in ("float32", "bfloat16"):
            own = row(found, model="35M", dtype=dtype)
            ms = own["ms"]["compiled/plain"], own["ms"]["xla/plain"], own["floor_ms"]
            yield SPEED, f"| {named} | {dtype} | {' | '.join(f'{each:.1f}' for each in ms)} |"


def larger_weights():
    """Speeds at the acceptance of `tiny`, and at the published one."""

    def speed(found):
        low, high = found["decode_speed_range"]
        return f"{found['decode_speed']:.2f} ({low:.2f} to {high:.2f})"

    loops = (
        of_a_blt("tiny", "eagle", 0.0, draft_length=8)["loops"],
        of_a_blt("tiny-d", "blt-dv", 0.0, block_size=8, unmask="one-step")["loops"],
    )
    yield SPEED, "({} of 64 for `blt-s` and `eagle`, {} for `blt-dv`)".format(*loops)
    for processor, found in on_both("speed/wall_clock"):
        cold, warm, published = (each["methods"] for each in found["rows"])
        costs = [
            each["eagle 8"]["ms_per_round"] / each["plain"]["ms_per_round"] for each in (cold, warm)
        ]
        costs = " and ".join(dict.fromkeys(f"{each:.1f}" for each in costs))
        what = "plain bytes " if processor == "Xeon" else ""
        yield SPEED, f"{costs} {what}on the {processor}"
        for name in ("eagle 8", "blt-s 16, predicted", "blt-s 8", "blt-dv 8, one step"):
            both = cold[name], warm[name]
            kept = " and ".join(f"{each['bytes_per_round']:.1f}" for each in both)
            as_published = speed(published[name]) if name in published else ""
            cells = [kept, processor, *map(speed, both), as_published]
            yield SPEED, f"| {' | '.join(cells)} |".replace("  |", " |")
            if processor == "Xeon" and name != "blt-s 8":
                yield README, f"| {' | '.join(cells[1:])} |".replace("  |", " |")


def bundled_models():
    found = report("training/bundled")
    textbooks = found["bits_per_byte"]["tiny"]["prose, textbooks"]
    latents, behind = found["latents"]["tiny"], found["latents"]["tiny-d"]["mean"]
    yield TRAINING, f"is at {textbooks:.2f} instead of"
    yield (
        TRAINING,
        f"a mean latent costs it {latents['mean']:.3f} bits, another text's latents "
        f"{latents['other']:.3f}",
    )
    yield TRAINING, f"A mean latent costs it {behind:.3f} bits."
    more, before = (
        [f"{each['value']:.3f}" for each in found["more_than_continued"][name].values()]
        for name in ("tiny-d", "tiny")
    )
    yield (
        TRAINING,
        f"`tiny-d` {more[0]} bits more on textbooks, {more[1]} on novels, {more[2]} on code, "
        f"{more[3]} on German and {more[4]} on French sentences",
    )
    yield (
        TRAINING,
        f"gained {before[2]} to {before[1]} bits on prose and code and lost {before[3][1:]} and "
        f"{before[4][1:]} on sentences",
    )


def int8():
    most = max(
        each["kinds"][kind]["more"]
        for each in report("quality/int8")["rows"]
        for kind in ("int8", "int8, bfloat16")
    )
    yield QUANTIZATION, f"int8 costs the bundled models {math.ceil(1e4 * most) / 1e4} at most"


def memory_of_the_1b():
    (here, found), (_, elsewhere) = on_both("speed/memory_1b")

    def of(report, weights, programs="compiled"):
        return row(report, weights=weights, programs=programs)

    def ms(report, weights, *programs):
        runs = [of(report, weights, each) for each in programs or ("compiled", "cached")]
        both = sorted(own["ms_per_byte"]["512"] for own in runs)
        return " to ".join(f"{each:.0f}" for each in both)

    kinds = ("float32", "bfloat16", "int8")
    for kind in kinds:
        own = of(found, kind)
        size = f"{own['weights_gb']:.1f} GB | {own['peak_gb']:.1f} GB"
        yield QUANTIZATION, f"| {size} | {ms(found, kind)} | {ms(elsewhere, kind)} |"
    wide = ms(found, "bfloat16")
    yield README, f"takes {wide} ms per byte in bfloat16 on two cores of the {here}"
    yield README, f"[{ms(found, 'int8')} in int8](docs/quantization.md)"
    first, later = (
        sorted({f"{of(found, kind, programs)['compile_seconds']:.0f}" for kind in kinds})
        for programs in ("compiled", "cached")
    )
    yield QUANTIZATION, f"a first run compiles for {first[0]} to {first[-1]} seconds"
    yield QUANTIZATION, f"a later one takes {later[0]} to {later[-1]} from the cache"
    slow = [ms(found, kind, "transformers") for kind in ("float32", "bfloat16")]
    peaks = [of(found, kind, "transformers")["peak_gb"] for kind in ("float32", "bfloat16")]
    yield QUANTIZATION, "takes {} ms per byte in float32 after 512 bytes, and {} in".format(*slow)
    yield QUANTIZATION, "needs {:.1f} GB in float32 and {:.1f} GB in bfloat16".format(*peaks)


def drafts_over_boundaries():
    found = report("speed/latents")

    def cells(name, length):
        both = [row(found, latents=name, draft_length=length, temperature=t) for t in (0.0, 1.0)]
        plain = [row(found, latents="none", temperature=t) for t in (0.0, 1.0)]
        patches = [each["patches_per_global_pass"]["value"] for each in both]
        read = [
            (own["gb_per_byte"]["value"] + own["ahead_gb_per_byte"]) / other["gb_per_byte"]["value"]
            for own, other in zip(both, plain, strict=True)
        ]
        speeds = [f"{own['decode_speed']:.2f}" for own in both if "decode_speed" in own]
        return [
            *(intervals.shown(bytes_a_round(each)) for each in both),
            "{:.2f} / {:.2f}".format(*patches),
            "{:.2f} / {:.2f}".format(*read),
            " / ".join(speeds) or "not timed",
        ]

    for name, length in (
        ("stale", 8), ("stale", 16), ("stale", 24), ("mean", 16),
        ("predicted in another text", 16), ("predicted", 8), ("predicted", 16), ("predicted", 24),
        ("predicted, nested", 8), ("predicted, nested", 16), ("predicted, nested", 24),
        ("true, one patch", 16), ("true, two patches", 16),
    ):  # fmt: skip
        yield DRAFTERS, f"| {name} | {length} | {' | '.join(cells(name, length))} |"
    for name, length in (("stale", 8), ("predicted", 16), ("predicted, nested", 16)):
        *_, patches, read, speed = (each.replace(" / ", " and ") for each in cells(name, length))
        both = [row(found, latents=name, draft_length=length, temperature=t) for t in (0.0, 1.0)]
        rounds = " and ".join(f"{bytes_a_round(each)['value']:.1f}" for each in both)
        yield SPEED, f"{rounds} | {patches} | {read} | {speed} |"
        if name == "stale":
            yield README, f"| `blt-s`, 8 bytes | Xeon | {speed.replace(' and ', ' | ')} | |"
    both = [row(found, latents="stale", draft_length=8, temperature=t) for t in (0.0, 1.0)]
    accept = [each["acceptance_without_loops"] for each in both]
    published = published_fast_blt.shown("blt-s", {"draft_length": 8})
    shares = " and ".join(f"{100 * each['value']:.0f}" for each in accept)
    yield SPEED, f"{shares} % are accepted (published for 1B and 3B: {published})"


def rules_of_acceptance():
    found = report("speed/draft_rules")
    drafters = list(dict.fromkeys(each["setting"]["drafter"] for each in found["rows"]))
    named = {
        "byte by byte": "byte by byte",
        "as a block (the default)": "as a block",
        "typical, lossy": "typical acceptance",
    }

    def cell(drafter, rule):
        for each in found["rows"]:
            if each["setting"] == {"drafter": drafter, "temperature": 1.0, "rule": rule}:
                return f"{bytes_a_round(each)['value']:.2f} / {each['decode_speed']:.2f}"
        return "not tried"

    for name, rule in named.items():
        cells = [cell(drafter, rule) for drafter in drafters]
        yield DRAFTERS, f"| {name} | {' | '.join(cells)} |"
    bits = []
    for drafter in ("blt-s of tiny", "draft model of tiny-lm"):
        whose = {"drafter": drafter, "temperature": 1.0}
        typical = row(found, rule="typical acceptance", **whose)["bits_per_byte"]["value"]
        plain = row(found, rule="byte by byte", **whose)["plain_bits_per_byte"]["value"]
        bits.append(f"{typical:.2f} and {plain:.2f}")
    yield DRAFTERS, f"{bits[0]} for `tiny`, {bits[1]} for `tiny-lm`"


def hours_of_the_report():
    studies = (pages.ROOT / "experiments").glob("*/*/run.py")
    told = (re.search(r"^MINUTES = (.+)$", each.read_text(), re.MULTILINE) for each in studies)
    minutes = sum(float(found[1]) for found in told if found)
    yield EXPERIMENTS, f"runs takes about {minutes / 60:.0f} hours on two cores"


def memory_of_pods():
    sizes = (", 1 rows a part, 4096 bytes", ", 8 rows a part, 2048 bytes")  # training and decoding
    for name, own in report("compile/pods").items():
        if not name.endswith(sizes) or "arguments" not in own:
            continue
        pod, size, what, mesh = name.split(", ")[:4]
        kind = "training step" if what == "train" else f"`{what}`"
        gib = [f"{own[part] / 2**30:.2f}" for part in ("bytes_a_device", "arguments")]
        said = [sum(own["collectives"].get(part, {}).values()) for part in ("draft", "rest")]
        exchanges = ", ".join(str(count) for count in said if count) or "none"
        most = [f"{own['largest'][field]:,}" for field in ("rows", "context")]
        program = f"{pod}, {size}, {kind}, {mesh.replace(',', ', ')}"
        yield PODS, f"| {' | '.join([program, *gib, exchanges, *most])} |"


def operations_on_the_h200():
    def counted(method):
        setting = {"chip": "h200", "method": method, "batch": 1}
        own = row(report("compile/rounds"), **setting)
        whole = rounds.whole(rounds.Setting(**setting), own, "operations")
        return own, f"{round(whole):,}"

    own, now = counted("blt-s")
    layer, byte = own["operations_per_decoder_layer"], counted("ar")[1]
    yield (
        KERNELS,
        f"a layer of the decoder is {layer:.0f} operations, a plain byte {byte}, and a round of "
        f"BLT-S {now}",
    )


def the_1b_with_predicted_latents():
    """How many times as fast as plain decoding, as reckoned, at T = 1 and as published."""
    found = report("compile/rounds", "latents")
    figure = rounds.reader(found)
    predicted, stale = (
        row(found, chip="h200", method=name, batch=1)["parts"]["draft"]["operations"]
        for name in ("blt-s 16, predicted", "blt-s 16")
    )
    yield DRAFTERS, f"has {predicted} operations in place of {stale}"
    for method in latents.DRAFTS:
        cells = [
            " / ".join(
                reckoned.between(latents.ranges(chip, rows, method, name, figure)["speed"], 1)
                for name in (latents.TINY_1, latents.PUBLISHED)
            )
            for chip, rows in latents.PLACES
        ]
        yield DRAFTERS, f"| {latents.SHOWN.get(method, method)} | {' | '.join(cells)} |"


TRANSLATED = {
    ("ar", None, None): "plain",
    ("blt-dv", "one-step", None): "`blt-dv`",
    ("blt-d", "entropy", 0.0): "one byte per pass",
    ("blt-d", "one-step", None): "one step",
}


def translations():
    found = report("quality/translation")
    plain = row(found, model="blt", method="ar")

    def scores(name):
        return " and ".join(f"{each['value']:.1f}" for each in plain[name].values())

    yield FAST_BLT, f"BLEU {scores('bleu')}, chrF {scores('chrf')}"
    drafted = [row(found, method="blt-s", draft_length=length) for length in (4, 8, 16)]
    assert all(each[name] == plain[name] for each in drafted for name in ("bleu", "chrf"))
    kept = (f"{100 * each['acceptance']['value']:.0f}" for each in drafted)
    yield FAST_BLT, "It keeps {}, {} and {} % of drafts of 4, 8 and 16 bytes".format(*kept)
    name = "bandwidth_gb_with_patcher"
    weights = (f"{each[name] / plain[name]:.2f}" for each in drafted)
    yield FAST_BLT, "{}, {} and {} times the weights".format(*weights)
    blocks = [row(found, method="blt-dv", block_size=size) for size in trained.BLOCK_SIZES]
    kept = (f"{100 * each['acceptance']['value']:.0f}" for each in blocks)
    yield FAST_BLT, "keeps {}, {} and {} % of blocks of 4, 8 and 16".format(*kept)
    for model, label in translation.MODELS.items():
        for each in found["rows"]:
            setting = each["setting"]
            way = TRANSLATED.get((setting["method"], setting.get("unmask"), setting.get("gamma")))
            if setting["model"] != model or model == "blt" or way is None:
                continue
            size = f", blocks of {setting['block_size']}" if "block_size" in setting else ""
            both = " and ".join(f"{score['value']:.1f}" for score in each["bleu"].values())
            read = 100 * each[name] / row(found, model="blt-more", method="ar")[name]
            passes = f"{each['decoder_passes']:.1f}"
            yield FAST_BLT, f"| {label}, {way}{size} | {both} | {passes} | {read:.0f} |"


def curve_of_a_draft_layer():
    found = report("training/draft_curve")

    def kept(run, t, **setting):
        own = row(found, run=run, temperature=t, **setting)
        return f"{own['kept_per_round_without_loops']['value']:.2f}"

    def both(run, **setting):
        return f"{kept(run, 0.0, **setting)} and {kept(run, 1.0, **setting)}"

    four = {"draft_length": 4}
    yield (
        SELF_DRAFTING,
        f"the draft layer keeps {kept('layer-3', 0.0, **four)} bytes per round without loops and "
        f"{kept('layer-3', 1.0, **four)} at temperature 1, a draft model "
        f"{both('small-3', **four)}, the multi-byte heads {both('heads-3', method='medusa')}, the "
        f"exit at half of the layers {both('heads-3', method='early-exit')}, the two-byte head "
        f"{both('heads-3', method='two-byte')}",
    )
    seeds = {
        first: " and ".join(
            f"{min(each)} to {max(each)}"
            for each in (
                [kept(run, t, **four) for run in (first, *SEEDS[first])] for t in (0.0, 1.0)
            )
        )
        for first in ("layer-3", "small-3")
    }
    yield (
        SELF_DRAFTING,
        f"Over three seeds the draft layer keeps {seeds['layer-3']}, the draft model "
        f"{seeds['small-3']}",
    )
    curves = [
        "{}, {} and {}".format(*(kept(f"layer-{mb}", t, draft_length=12) for mb in (1, 3, 30)))
        for t in (0.0, 1.0)
    ]
    yield SELF_DRAFTING, f"a layer keeps {curves[0]} without loops and {curves[1]} at temperature 1"


def on_an_h100():
    def of(found, method):
        return row(found, batch=1, context=512, method=method)

    decoded, graphs = report("accelerator/decode"), report("accelerator/decode", "graphs")
    plain = of(decoded, "plain")
    speeds = {
        name: plain["ms_per_byte"] / of(decoded, name)["ms_per_byte"]
        for name in ("blt-s 8", "blt-dv 8, one step", "blt-dv 16, one step")
    }
    own, eight, sixteen = (f"{speed:.2f}" for speed in speeds.values())
    yield (
        KERNELS,
        f"a plain byte takes {plain['ms_per_byte']:.2f} ms, and reading its weights and caches "
        f"{plain['floor_ms_per_round']:.2f}",
    )
    yield (
        KERNELS,
        f"`blt-s` with 8 bytes is {own} times as fast as plain decoding, `blt-dv` in one step "
        f"{eight} times with blocks of 8 and {sixteen} times with blocks of 16",
    )
    yield DRAFTERS, f"`blt-s` with 8 bytes is {own} times as fast at the acceptance published"
    yield (
        SPEED,
        f"`blt-s` with 8 bytes is {own} times as fast, and `blt-dv` with blocks of 8 in one step "
        f"{eight} times",
    )
    share = f"reads at {100 * plain['bandwidth_share']:.0f} % of the card's bandwidth"
    yield README, f"On the H100 plain decoding {share}"
    yield (
        SPEED,
        f"one row in bfloat16 takes {plain['ms_per_byte']:.2f} ms per byte in plain decoding, "
        f"which {share}",
    )
    yield README, f"| `blt-s`, 8 bytes | H100 | | | {own} |"
    yield README, f"| `blt-dv`, 8 bytes in one step | H100 | | | {eight} |"
    launches = of(graphs, "plain")["operations_per_round"]
    yield (
        KERNELS,
        f"a byte takes {launches:.0f} launches in place of {plain['operations_per_round']:.0f}",
    )
    operation = 1e3 * plain["ms_per_byte"] / plain["operations_per_round"]
    yield KERNELS, f"an operation takes {operation:.0f} microseconds"
    rounds_of = (of(decoded, f"blt-dv {size}, one step")["ms_per_round"] for size in (16, 8))
    yield (
        KERNELS,
        "{:.1f} ms for a round of `blt-dv` with blocks of 16, {:.1f} with 8".format(*rounds_of),
    )
    kernels = report("accelerator/kernels")
    checked = [each for each in kernels["rows"] if each["setting"]["step"] == "check"]
    assert all(each["exact"] for each in checked)
    yield KERNELS, f"All {len(checked)} cases of the four kernels were right"
    timed = row(kernels, step="time", case="local, B 1")
    yield (
        KERNELS,
        f"takes {timed['kernel_us']:.0f} microseconds, {timed['xla_us']:.0f} by XLA and "
        f"{timed['cudnn_us']:.0f} by cuDNN",
    )
    drawn = row(kernels, step="time", case="entropy, drawn")
    yield (
        KERNELS,
        f"takes {drawn['kernel_us']:.0f} microseconds where ids are drawn, {drawn['xla_us']:.0f} "
        "by XLA",
    )


def drafts_in_batches():
    rows = report("speed/latents", "batches")["rows"]
    sizes = sorted({each["setting"]["rows"] for each in rows})

    def speeds(name, size):
        both = [each["ways"] for each in rows if each["setting"]["rows"] == size]
        return " / ".join(f"{each[name]['speed'][0]:.2f}" for each in both if name in each) or "-"

    names = {
        "none, rows wait": "plain decoding, rows wait",
        "stale, 2 bytes": "2 bytes on the latest latent",
        "stale, 8 bytes": "8 bytes on it",
        "predicted, 16 bytes": "16 bytes on predicted latents",
        "predicted, nested, 16 bytes": "the same, nested",
    }
    for name, label in names.items():
        yield DRAFTERS, f"| {label} | {' | '.join(speeds(name, size) for size in sizes)} |"
    both = [each["ways"] for each in rows if each["setting"]["rows"] == 16]
    parts = [(each["predicted, 16 bytes"]["parts"], each["none"]["parts"]) for each in both]
    drafting = " and ".join(f"{drafted['draft']:.2f}" for drafted, _ in parts)
    plain = " and ".join(f"{sum(own.values()):.2f}" for _, own in parts)
    yield DRAFTERS, f"at 16 rows it takes {drafting} ms per byte on predicted latents"
    yield DRAFTERS, f"where plain decoding takes {plain} ms in all"


def block_tables():
    found = report("speed/block_table")

    def kept(table):
        both = (row(found, table=table, temperature=each) for each in (0.0, 1.0))
        zero, one = (f"{each['bytes_per_round_without_loops']['value']:.2f}" for each in both)
        return zero, one

    zero, one = kept(block_table.STATE)
    yield DRAFTERS, f"{zero} bytes per round at temperature 0 without loops and {one} at 1"
    yield DRAFTERS, f"without a table {' and '.join(kept(block_table.NONE))}"
    yield DRAFTERS, f"did not depend on the state kept {' and '.join(kept(block_table.PAIRS))}"


CLAIMS = (
    beside_transformers, outputs_of_lossless_methods, several_rows, small_models,
    five_claims_of_the_readme, published_beside_measured, spans_of_decoders, table_of_drafters,
    turns_samples_and_constraints, right_answers, bits_of_samples, drafts_of_the_decoder,
    drafts_over_boundaries, rules_of_acceptance, drafts_of_a_byte_transformer, what_does_not_pay,
    blocks_on_the_bundled_models, windows, price_of_a_round, compiled_kernels, larger_weights,
    bundled_models, int8, hours_of_the_report, memory_of_pods, memory_of_the_1b,
    operations_on_the_h200, the_1b_with_predicted_latents, on_an_h100, curve_of_a_draft_layer,
    translations, block_tables, drafts_in_batches,
)  # fmt: skip
