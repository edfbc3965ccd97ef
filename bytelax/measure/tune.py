"""`bytelax tune`: finds the fastest lossless setting for a model, a machine and a batch size."""

import concurrent.futures
import dataclasses
import itertools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rich
import rich.table

from bytelax import calculator, methods
from bytelax.loading import load
from bytelax.measure import timing
from bytelax.measure.timing import Contestant, Ratio
from bytelax.model import Model
from bytelax.options import METHODS
from bytelax.running import Statistics, generate
from bytelax.running.engine import rows_for
from bytelax.systems import tuned
from bytelax.systems.tuned import Setting

# Those that need nothing but a model and its heads, and their options. Without a head of its own an
# exit drafts too badly to be worth the time.
_METHODS: dict[str, dict[str, Any]] = {
    "lookup": {}, "early-exit": {"exit_head": True}, "composed": {}, "two-byte": {}, "medusa": {},
    "eagle": {}, "dflash": {}, "blt-s": {}, "blt-dv": {},
}  # fmt: skip
_LONGEST = 64  # bytes of a draft: a program is compiled for each window
_TURNS = 5  # of all windows and drafts
_BYTES = 32  # that each row writes in a turn
_FINALISTS = 4  # plans that are timed against plain decoding, since costs are noisy
_BATCHES = 4  # of prompts that time them, in each turn

Lengths = dict[int, dict[str, Any]]  # options of a method by the number of bytes that it drafts


class Timed(NamedTuple):
    """A setting that was timed."""

    plan: calculator.Plan
    speed: Ratio


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What was measured, and what it is best for.

    Attributes:
      windows: seconds of a round of plain decoding in windows of 1, 2, ... bytes.
      acceptance: by method, the share of rounds that keep the byte drafted at each position.
      drafting: by method, seconds that drafting 1, 2, ... bytes adds to a round.
      plans: expected speeds of all settings, the fastest first.
      timed: measured speed-ups of the first of them over plain decoding, the fastest first; empty
        if plain decoding comes first.
      setting: the setting to use: the fastest that was timed, or plain decoding.
      path: the file that holds it.
    """

    windows: list[float]
    acceptance: dict[str, list[float]]
    drafting: dict[str, list[float]]
    plans: list[calculator.Plan]
    timed: list[Timed]
    setting: Setting
    path: Path

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as a dictionary that can be written as JSON."""
        return dataclasses.asdict(self) | {
            "plans": [plan._asdict() for plan in self.plans],
            "timed": [each.plan._asdict() | each.speed._asdict() for each in self.timed],
            "path": str(self.path),
        }


def prompts_of(text: bytes, many: int) -> list[bytes]:
    """Returns as many prompts from the lines of a text, evenly spread; short texts are repeated.

    Raises:
      ValueError: there is no line.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError("there is no prompt: give one in each line")
    if len(lines) < many:
        return [lines[place % len(lines)] for place in range(many)]
    return [lines[place * len(lines) // many] for place in range(many)]


def tune(
    model: Model,
    prompts: Sequence[bytes],
    *,
    batch: int = 1,
    draft_model: str | None = None,
    draft_loading: dict[str, Any] | None = None,
    max_new_bytes: int = 128,
    temperature: float = 0.0,
    longest: int = 16,
    report: Callable[[str], object] = lambda message: None,
) -> Tuning:
    """Measures what rounds cost and keep, chooses a setting by it, times that, and keeps it.

    Costs are measured in turns: windows of 1 to `longest` + 1 bytes, and rounds of each method at a
    few draft lengths; what these cost more than their windows is what drafting costs, and lies on
    straight lines between them. Acceptance comes from the longest drafts. The best few of what
    these promise are timed against plain decoding, and the fastest is kept.

    Args:
      model: the model.
      prompts: a multiple of `batch`. One that is too long for the context loses its beginning.
      batch: number of rows that are decoded together.
      draft_model: location of a draft model.
      draft_loading: keywords of `load` for it, as JSON has them.
      max_new_bytes: number of bytes that continue each prompt.
      temperature: sampling temperature.
      longest: most bytes to draft, at most 64.
      report: called with what is done next.

    Raises:
      ValueError: the prompts are no multiple of the batch, no room is left in the context, or the
        drafts are too long.
    """
    if not 1 <= longest <= _LONGEST:
        raise ValueError(
            f"longest must lie in 1..{_LONGEST}, as each window is compiled; got {longest}"
        )
    room = model.config.max_bytes - 1 - max_new_bytes
    if room < 1 or len(prompts) % batch or longest >= model.config.max_bytes:
        raise ValueError(
            f"a context of {model.config.max_bytes - 1} bytes has no room for {max_new_bytes} new "
            f"ones and drafts of {longest}, or {len(prompts)} prompts make no batches of {batch}"
        )
    prompts = sorted((prompt[-room:] for prompt in prompts), key=len)  # alike in each batch
    batches = [prompts[start : start + batch] for start in range(0, len(prompts), batch)]
    draft_loading = draft_loading or {}
    small = None if draft_model is None else load(draft_model, **draft_loading)
    known = candidates(model, longest, small)
    how = {"temperature": temperature, "allow_eos": False}

    windows = [Contestant("ar", {"window": width + 1}) for width in range(longest + 1)]
    probes = {method: _probed(lengths) for method, lengths in known.items()}
    rounds = [Contestant(x, known[x][length]) for x in probes for length in probes[x]]
    report(f"compiling {len(windows) + len(rounds)} settings")
    middle = batches[len(batches) // 2]
    new = min(_BYTES, max_new_bytes)
    costs = round_seconds(model, middle, windows + rounds, report=report, max_new_bytes=new, **how)
    by_window, others = costs[: len(windows)], iter(costs[len(windows) :])
    drafting = {
        method: drafting_costs(by_window, {length: next(others) for length in probed}, max(probed))
        for method, probed in probes.items()
    }
    acceptance = {}
    for method, lengths in known.items():
        report(f"what {method} keeps")
        longest_drafts = Contestant(method, lengths[max(lengths)])
        acceptance[method] = kept(
            model, batches, longest_drafts, max_new_bytes=max_new_bytes, **how
        )
    plans = [
        plan
        for plan in calculator.plan(by_window, acceptance, drafting)
        if plan.method == "ar" or plan.draft_length in known[plan.method]
    ]
    promising = itertools.takewhile(lambda plan: plan.draft_length, plans)
    finalists = list(itertools.islice(promising, _FINALISTS))
    timed, setting = [], Setting("ar")
    if finalists:
        names = ", ".join(f"{plan.method} with {plan.draft_length}" for plan in finalists)
        report(f"timing {names} bytes against plain decoding")
        found = timing.compare_with_plain(
            model, list(itertools.chain(*batches[:: -(-len(batches) // _BATCHES)])),
            [Contestant(plan.method, known[plan.method][plan.draft_length]) for plan in finalists],
            new=max_new_bytes, repeats=_TURNS, batch=batch, temperature=temperature,
        )  # fmt: skip
        pairs = zip(finalists, found, strict=True)
        measured = [Timed(plan, own.decode_speed) for plan, own in pairs]
        timed = sorted(measured, key=lambda each: -each.speed.median)
        best, speed = timed[0]
        if speed.median > 1:
            options = known[best.method][best.draft_length]
            places = {} if small is None else {"draft_model": _place(draft_model)}
            options |= {name: places[name] for name in options.keys() & places.keys()}
            setting = Setting(best.method, options, draft_loading, speed.median)
    path = tuned.write(model, rows_for(batch), setting)
    return Tuning(by_window, acceptance, drafting, plans, timed, setting, path)


def candidates(model: Model, longest: int, draft_model: Model | None) -> dict[str, Lengths]:
    """Returns the methods that a model can run, with their options for up to `longest` bytes."""
    asked = dict(_METHODS)
    if draft_model is not None:
        asked["draft-model"] = {"draft_model": draft_model}
    found = {method: settings_of(method, model, longest, **asked[method]) for method in asked}
    return {method: lengths for method, lengths in found.items() if lengths}


def settings_of(method: str, model: Model, longest: int, **more: Any) -> Lengths:
    """Returns options of a method that draft 1 to `longest` bytes; none if it cannot run."""
    fields = [field.name for field in dataclasses.fields(METHODS[method])]
    name = next((name for name in ("draft_length", "block_size") if name in fields), None)
    found: Lengths = {}
    for length in range(1, longest + 1):
        options = more if name is None else {name: length, **more}
        try:
            built, _ = methods.build(method, model, **options)
        except ValueError:
            continue
        if built.drafter.draft_length <= longest:
            found[built.drafter.draft_length] = options
    return found


def _probed(lengths: Lengths) -> list[int]:
    """The draft lengths whose rounds are timed: the shortest, the middle and the longest."""
    known = sorted(lengths)
    return sorted({known[0], known[len(known) // 2], known[-1]})


def round_seconds(
    model: Model,
    prompts: Sequence[bytes],
    contestants: Sequence[Contestant],
    *,
    report: Callable[[str], object],
    **how: Any,
) -> list[float]:
    """Returns the median time of a round of each contestant, all of which run in turns.

    Each is compiled first, two at once. `how` takes further keywords of `generate`.
    """

    def run(contestant: Contestant) -> float:
        how_it_runs = how | contestant.settings
        stats = generate(model, prompts, method=contestant.method, **how_it_runs).stats
        assert stats.seconds is not None and stats.prefill_seconds is not None
        return (stats.seconds - stats.prefill_seconds) / stats.batch_windows

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(run, contestants))
    report("timing windows and drafts")
    turns = [[run(contestant) for contestant in contestants] for _ in range(_TURNS)]
    return [statistics.median(times) for times in zip(*turns, strict=True)]


def drafting_costs(windows: Sequence[float], rounds: dict[int, float], longest: int) -> list[float]:
    """Returns what drafting 1 to `longest` bytes adds to the cost of a window.

    Args:
      windows: costs of windows of 1, 2, ... bytes.
      rounds: costs of whole rounds at some draft lengths; between these the difference is
        interpolated, and outside it is that of the nearest.
      longest: most bytes to draft.
    """
    known = sorted(rounds)
    extra = [rounds[length] - windows[length] for length in known]
    return np.interp(np.arange(1, longest + 1), known, extra).tolist()


def kept(
    model: Model, batches: Sequence[Sequence[bytes]], contestant: Contestant, **how: Any
) -> list[float]:
    """Returns the share of rounds that keep the byte drafted at each position.

    A round without a draft keeps none. What an end of the text cut off does not count.
    """
    how |= contestant.settings
    outputs = [
        generate(model, rows, method=contestant.method, seeds=index * len(rows), **how)
        for index, rows in enumerate(batches)
    ]
    stats = Statistics.sum([output.stats for output in outputs])
    accepted, drafted = map(np.array, (stats.accepted_by_position, stats.drafted_by_position))
    with_draft = drafted[0] / stats.rounds
    return (with_draft * accepted / np.maximum(drafted, 1)).tolist()


def _place(location: str | None) -> str | None:
    """A location that means the same from every directory."""
    if location is not None and Path(location).exists():
        return str(Path(location).resolve())
    return location


def show(tuning: Tuning) -> None:
    """Prints the best setting of each method, which one is fastest, and where that is kept."""
    table = rich.table.Table("method", "drafted", "expected", "kept at each position", box=None)
    best: dict[str, calculator.Plan] = {}
    for plan in tuning.plans:  # the fastest first
        best.setdefault(plan.method, plan)
    for method, plan in best.items():
        shares = tuning.acceptance.get(method, [])[: plan.draft_length]
        kept = " ".join(f"{share:.0%}" for share in shares)
        table.add_row(method, str(plan.draft_length), f"{plan.speed:.2f}x", kept)
    rich.print(table)
    for plan, speed in tuning.timed:
        print(
            f"Timed: {plan.method} with {plan.draft_length} bytes: {speed.median:.2f} times plain "
            f"decoding ({speed.lowest:.2f} to {speed.highest:.2f} in {_TURNS} turns)"
        )
    if tuning.setting.method == "ar":
        print("Nothing is faster than plain decoding.")
    print(f"`--method tuned` runs {tuning.setting.method}; kept in {tuning.path}")
