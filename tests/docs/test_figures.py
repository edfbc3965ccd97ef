"""Figures on the pages are those of the results that they link to.

`CLAIMS` has, for each page, fragments of its text with the numbers formatted from a file of
results. Whoever measures anew or words a sentence anew finds here what else has to change.
"""

import json

import pages
import pytest

README, DRAFTERS, SELF_DRAFTING = "README.md", "docs/drafters.md", "docs/self_drafting.md"


def report(study: str, name: str = "results") -> dict:
    return json.loads((pages.ROOT / "experiments" / study / f"{name}.json").read_text())


def row(found: dict, **setting) -> dict:
    """The one row that was measured with this setting."""
    (only,) = [each for each in found["rows"] if setting.items() <= each["setting"].items()]
    return only


def beside_transformers():
    for each in report("speed/vs_peers")["rows"]:
        if each["setting"]["contest"] == "blt":
            ratio = each["ratio"]
            yield (
                README,
                f"| {each['setting']['context']} | {each['transformers_ms']:.1f} | "
                f"{each['bytelax_ms']:.2f} | {ratio['median']:.0f} ({ratio['lowest']:.0f} to "
                f"{ratio['highest']:.0f}) |",
            )


def replayed():
    """On random weights with the acceptance that was published."""
    methods = row(report("speed/wall_clock"), acceptance="as published")["methods"]

    def speed(name):
        low, high = methods[name]["decode_speed_range"]
        return f"{methods[name]['decode_speed']:.2f} ({low:.2f} to {high:.2f})"

    yield README, f"`blt-s` is {speed('blt-s 8')} times as fast as plain decoding"
    yield README, f"and `blt-dv` {speed('blt-dv 8, one step')} times"


def kept(name: str, temperature: float, batch: int) -> dict:
    found = report("speed/drafters")
    return row(found, name=name, temperature=temperature, batch=batch)


def interval(figure: dict) -> str:
    low, high = figure["interval"]
    return f"{figure['value']:.2f} ({low:.2f} to {high:.2f})"


def bytes_a_round(each: dict) -> dict:
    """At temperature 0 loops are left out; sampled text hardly ever loops."""
    greedy = not each["setting"]["temperature"]
    return each["bytes_per_round_without_loops" if greedy else "bytes_per_round"]


def drafters_of_the_readme():
    def keeps(name):
        return [f"{bytes_a_round(kept(name, t, 1))['value']:.1f}" for t in (0, 1)]

    greedy, sampled = keeps("blt-s")
    (layer,) = set(keeps("sequential"))
    yield (
        README,
        f"`blt-s` keeps {greedy} bytes a round at temperature 0 and {sampled} at 1, and a draft "
        f"layer trained on the frozen model {layer} at both",
    )
    alone = [kept(name, t, 1)["speed"] for name in ("blt-s", "sequential") for t in (0, 1)]
    yield README, f"({min(alone):.2f} to {max(alone):.2f}), and {sixteen_rows()} at 16 rows"


def sixteen_rows() -> str:
    speeds = [kept("blt-s", t, 16)["speed"] for t in (0, 1)]
    return f"`blt-s` {speeds[0]:.2f} and {speeds[1]:.2f} times as fast"


def table_of_drafters():
    found = report("speed/drafters")
    for name in dict.fromkeys(each["setting"]["name"] for each in found["rows"]):
        alone, many = ([kept(name, t, batch) for t in (0, 1)] for batch in (1, 16))
        read = [
            f"{each['gb_per_byte']['value'] / each['plain']['gb_per_byte']['value']:.2f}"
            for each in alone
        ]
        cells = [
            name,
            *(interval(bytes_a_round(each)) for each in alone),
            " / ".join(read),
            *(" / ".join(f"{each['speed']:.2f}" for each in rows) for rows in (alone, many)),
        ]
        yield DRAFTERS, f"| {' | '.join(cells)} |"


def sentences_on_drafters():
    loops = {kept(name, 0, 1)["loops"] for name in ("blt-s", "blt-dv")}
    yield DRAFTERS, f"the {min(loops)} or {max(loops)} prompts whose continuation ends in a loop"
    yield DRAFTERS, f"and {sixteen_rows().replace('`blt-s`', '`blt-s` is')}"
    (heads, *_) = report("speed/drafters", "teacher_forced")["rows"]
    first, *_, last = heads["heads"]["draft_layer"]["agreed"]
    yield DRAFTERS, f"{100 * first:.0f} % of all cases at the first byte and in {100 * last:.0f} %"


def windows():
    """What passes of the published shape take, whatever the prompts."""
    passes = row(report("speed/self_drafting", "windows"), model="85M")["seconds"]
    whole, rest = passes["whole"], passes["from the exit"]
    yield SELF_DRAFTING, f"{100 * rest['8'] / whole['8']:.0f} % at eight bytes"
    yield SELF_DRAFTING, f"costs as much as {whole['16'] / whole['1']:.1f} passes of one byte"
    yield SELF_DRAFTING, f"make a byte {passes['no cache'] / whole['1']:.0f} times faster"


CLAIMS = (
    beside_transformers, replayed, drafters_of_the_readme, table_of_drafters,
    sentences_on_drafters, windows,
)  # fmt: skip


def missing(claims) -> list[tuple[str, str]]:
    """Those that their page does not have, however its lines are broken."""
    texts = {page: " ".join((pages.ROOT / page).read_text().split()) for page, _ in claims}
    return [(page, said) for page, said in claims if said not in texts[page]]


@pytest.mark.parametrize("claims", CLAIMS, ids=lambda claims: claims.__name__)
def test_figures_are_those_that_were_measured(claims):
    found = list(claims())
    assert found and not missing(found)


def test_another_figure_is_seen(tmp_path, monkeypatch):
    claims = list(beside_transformers()) + list(sentences_on_drafters())
    said = {page: (pages.ROOT / page).read_text() for page, _ in claims}
    assert not missing(claims)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    for page, text in said.items():
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text(text.replace("44 (43 to 45)", "46 (43 to 47)"))
    ((page, wrong),) = missing(claims)
    assert page == README and "44 (43 to 45)" in wrong
