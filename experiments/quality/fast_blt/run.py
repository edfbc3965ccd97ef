"""The tables of Fast BLT in miniature: what a method writes, and what it takes to write it.

    pip install -e .[eval]
    python -m experiments.quality.fast_blt.run --data DIR

Translation at every setting of the paper's Tables 3 to 10, and programs at one setting a method:
score, agreement with plain decoding, how likely the output is under plain decoding, acceptance,
passes, weights read and bytes a second, beside the paper's rows. As there, a fixed number of bytes
is generated and what follows the answer is cut off afterwards; decoding is greedy. The bundled
models can neither translate nor program, so the report does not run it.
"""

import functools
import math
import pathlib

from bytelax import Statistics, generate, load
from bytelax.measure import likelihood, tasks
from experiments.harness import published_fast_blt, study


def options_of(model, method, printed):
    """A row's model, method and setting as `generate` takes them."""
    if method == "AR":
        return {"method": "ar"}
    if method == "BLT-S":
        return {"method": "blt-s", "draft_length": int(printed[2:])}
    name, _, number = printed.partition("=")
    unmask, bound = {"a": ("confidence", "alpha"), "g": ("entropy", "gamma")}.get(
        name, ("one-step", None)
    )
    rule = {"unmask": unmask} | ({bound: float(number)} if bound else {})
    return {"method": method.lower(), "block_size": int(model[2:]), **rule}


PRINTED = {row[1:4]: options_of(*row[1:4]) for row in published_fast_blt.rows()}
SETTINGS = list(PRINTED.values())
# The settings that also write programs.
WRITE_CODE = [
    {"method": "ar"},
    {"method": "blt-s", "draft_length": 8},
    {"method": "blt-d", "block_size": 8, "unmask": "confidence", "alpha": 0.7},
    {"method": "blt-dv", "block_size": 8, "unmask": "one-step"},
]
# Of each task: the paper's table, and bytes that are generated.
TRANSLATION = {
    "tatoeba-fra-eng": ("FrEn", 96),
    "tatoeba-deu-eng": ("DeEn", 96),
    "flores-fra-eng": ("FrEn", 192),
    "flores-deu-eng": ("DeEn", 192),
}
CODE = {"humaneval": ("HumanEval", 256), "mbpp": ("MBPP", 256)}
# Longer tasks get one in so many of the examples.
ONE_IN = {"flores": 4, "humaneval": 2, "mbpp": 2}


class Bench:
    """Tasks, and what plain decoding writes to them."""

    def __init__(self, model, options):
        self.model, self.options, self.plain = model, options, {}
        self.nats = functools.cache(self._nats)  # lossless methods write the same texts

    def task(self, name):
        task = tasks.named(name)
        count = max(1, self.options.examples // ONE_IN.get(name.split("-")[0], 1))
        path = pathlib.Path(self.options.data) / task.place
        read = tasks.read(name, path, shots=min(task.shots, self.options.shots), limit=count)
        return read._replace(new=self.options.new or (TRANSLATION | CODE)[name][1])

    def outputs(self, task, setting):
        return [
            generate(
                self.model, [example.prompt], max_new_bytes=task.new, allow_eos=False, **setting
            )
            for example in task.examples
        ]

    def _nats(self, prompt, text):
        (scored,) = likelihood.continuations(self.model, [(prompt, text)], batch=1)
        return -scored.log_prob

    def figures(self, name, setting):
        """Of one task at one setting; counts are means over the texts."""
        task = self.task(name)
        outputs = self.outputs(task, setting)
        texts = [output.bytes[0] for output in outputs]
        if name not in self.plain:
            own = outputs if setting == SETTINGS[0] else self.outputs(task, SETTINGS[0])
            self.plain[name] = [output.bytes[0] for output in own]
        plain = self.plain[name]
        nats = sum(self.nats(e.prompt, text) for e, text in zip(task.examples, texts, strict=True))
        stats = Statistics.total([output.results[0].stats for output in outputs])
        seconds = sum(output.stats.seconds for output in outputs)
        prompt_seconds = sum(output.stats.prefill_seconds for output in outputs)
        means = (
            "rounds", "decoder_passes", "encoder_passes", "global_passes", "patcher_passes",
            "bandwidth_gb", "bandwidth_gb_with_patcher",
        )  # fmt: skip
        return {
            "texts": len(texts),
            "text_bytes": task.new,
            "prompt_bytes": sum(len(e.prompt) for e in task.examples) / len(texts),
            **task.scored(texts),
            "same_texts": sum(a == b for a, b in zip(texts, plain, strict=True)),
            "same_answers": sum(
                task.answer(a) == task.answer(b) for a, b in zip(texts, plain, strict=True)
            ),
            "same_beginning": sum(map(same_beginning, texts, plain)) / len(texts),
            "bits_per_byte": nats / math.log(2) / stats.bytes,
            "acceptance": stats.to_dict()["acceptance"],
            "acceptance_by_position": stats.to_dict()["acceptance_by_position"],
            "bytes_per_round": stats.to_dict()["bytes_per_round"],
            "bytes_per_patch": stats.to_dict()["bytes_per_patch"],
            **{mean: getattr(stats, mean) / len(texts) for mean in means},
            "decode_bytes_per_second": stats.bytes / (seconds - prompt_seconds),
            "bytes_per_second": stats.bytes / seconds,
        }


def same_beginning(text, plain):
    """Share of a text up to its first byte that plain decoding writes otherwise."""
    pairs = zip(text, plain, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(plain)) / len(plain)


def printed(setting):
    """The paper's names of a setting: model, method and setting."""
    return next(names for names, options in PRINTED.items() if options == setting)


def measure(setting, bench):
    """Figures of each task that a setting is for."""
    names = [name for name in bench.options.tasks if name not in CODE or setting in WRITE_CODE]
    return {"tasks": {name: bench.figures(name, setting) for name in names}}


def main():
    options = study.parser(__doc__, __file__)
    options.add_argument("--examples", type=int, default=16, help="sentences of Tatoeba")
    options.add_argument("--shots", type=int, default=4, help="most solved examples in a prompt")
    options.add_argument("--new", type=int, help="bytes of every text; by default each task's own")
    options.add_argument("--tasks", nargs="*", default=[*TRANSLATION, *CODE], help="by default all")
    options = options.parse_args()
    bench = Bench(load(options.model, dtype="float32"), options)

    study.run(
        options.results / "results.json",
        {
            "model": options.model, "examples": options.examples, "shots": options.shots,
            "new": options.new, "task_names": options.tasks, "batch": 1, "temperature": 0.0,
        },
        SETTINGS[:2] if options.smoke else SETTINGS,
        lambda setting: measure(setting, bench),
        markdown=markdown,
    )  # fmt: skip


def markdown(report):
    lines = [
        "# The tables of Fast BLT in miniature",
        "",
        f"`{report['model']}`, batch 1, greedy, up to {report['shots']} solved examples in a "
        f"prompt, {study.machine(report)}. Every text has a fixed number of bytes, as in the "
        "paper; its answer is what stands before the first stop. Passes and gigabytes are means of "
        "a text, the prompt left out; gigabytes by the paper's formula, and with the entropy model "
        "that it leaves out. Bits: of an output byte under plain decoding. Beginning: share of a "
        "text before it first departs from plain decoding's. Bytes a second were measured once, "
        "the prompt left out: `experiments/speed/blt_methods` has speeds beside plain decoding, in "
        "turns. The paper's figures are of models of 1B and 3B, and of another model for every "
        "block size; its scores are spBLEU and pass@1, its texts have 512 bytes (MBPP: 256).",
        "",
    ]
    for name in report["task_names"]:
        rows = [row for row in report["rows"] if name in row["tasks"]]
        lines += _task_table(name, rows) if rows else []
    return "\n".join(lines)


def _task_table(name, rows):
    table, _ = (TRANSLATION | CODE)[name]
    paper = {row[:4]: row for row in published_fast_blt.rows()}
    plain = rows[0]["tasks"][name]
    scores = [s for s in ("spbleu", "bleu", "chrf", "pass_at_1") if plain.get(s) is not None]
    header = (
        "method", "setting", *scores, "same answers", "beginning %", "bits", "accepted %",
        "bytes/round", "decoder", "encoder", "global", "GB", "with patcher", "decrease %",
        "bytes/patch", "bytes/s",
        *(f"{size}: {figure}" for size in ("1B", "3B") for figure in
          ("score", "accepted %", "decrease %")),
    )  # fmt: skip
    cells = []
    for row in rows:
        own = row["tasks"][name]
        beside = [paper.get((f"{size} {table}", *printed(row["setting"]))) for size in ("1B", "3B")]
        cells.append(
            (
                row["setting"]["method"],
                printed(row["setting"])[2],
                *(f"{100 * own[s] if s == 'pass_at_1' else own[s]:.1f}" for s in scores),
                f"{own['same_answers']}/{own['texts']}",
                f"{100 * own['same_beginning']:.0f}",
                f"{own['bits_per_byte']:.2f}",
                _percent(own["acceptance"]),
                f"{own['bytes_per_round']:.2f}",
                *(f"{own[f'{part}_passes']:.0f}" for part in ("decoder", "encoder", "global")),
                f"{own['bandwidth_gb']:.3f}",
                f"{own['bandwidth_gb_with_patcher']:.3f}",
                _percent(1 - own["bandwidth_gb"] / plain["bandwidth_gb"]),
                f"{own['bytes_per_patch']:.2f}",
                f"{own['decode_bytes_per_second']:.0f}",
                *(
                    figure
                    for line in beside
                    for figure in (
                        (line.score, _percent(line.acceptance), line.decrease)
                        if line
                        else (None,) * 3
                    )
                ),
            )
        )
    title = (
        f"{plain['texts']} texts of {plain['text_bytes']} bytes behind prompts of "
        f"{plain['prompt_bytes']:.0f}"
    )
    return [f"## {name}: {title}", "", *study.table(header, cells), ""]


def _percent(share):
    return None if share is None else f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
