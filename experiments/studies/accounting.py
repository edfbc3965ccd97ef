"""The calculator compared with the tables of Fast BLT (arXiv 2605.08044v1, Tables 3 to 10).

Passes follow from the published acceptance, gigabytes from the published passes; nothing runs. The
figures are the largest deviations from what is printed. Rounds vary more from text to text than one
rate of acceptance can express, so a one-step BLT-DV makes more passes than its rate gives. The last
columns are not published: what BLT-S, BLT-DV in one step and BLT-D at an entropy of 1 would read
over plain decoding, at the published passes, if a patch had 4.5 bytes, as in our models. In the
tables plain decoding closes a patch every 1.15 to 2.44 bytes.

    python -m experiments.studies.accounting
"""

from bytelax import calculator
from bytelax.calculator import Passes
from experiments import study
from experiments.harness import published_fast_blt
from experiments.study import Column

LONGER = 4.5  # bytes per patch
# Rows of a table, by the column that shows what they would read beside plain decoding.
FEWER_PASSES = {
    "BLT-S 8, longer patches": ("blt_s_8_longer_patches", "BLT", "BLT-S", "k=8"),
    "BLT-S 16": ("blt_s_16_longer_patches", "BLT", "BLT-S", "k=16"),
    "BLT-DV 8": ("blt_dv_8_longer_patches", "B=8", "BLT-DV", "one-step"),
    "BLT-DV 16": ("blt_dv_16_longer_patches", "B=16", "BLT-DV", "one-step"),
    "BLT-D 4": ("blt_d_4_longer_patches", "B=4", "BLT-D", "g=1.0"),
}
COLUMNS = [
    Column("table", "table"),
    Column("BLT-S: decoder passes", "blt_s_decoder", "+.1%"),
    Column("BLT-S: global passes", "blt_s_global", "+.1%"),
    Column("BLT-DV: decoder passes", "blt_dv_decoder", "+.1%"),
    Column("BLT-DV: global passes", "blt_dv_global", "+.1%"),
    Column("gigabytes", "gigabytes", "+.1%"),
    Column("rows within 1.5 %", "close"),
    Column("rows", "rows"),
    Column("bytes per patch", "bytes_per_patch", ".2f"),
    *(Column(title, key, ".2f") for title, (key, *_) in FEWER_PASSES.items()),
]


def main():
    options = study.parser(__doc__).parse_args()
    tables = dict.fromkeys(row.table for row in published_fast_blt.rows())
    study.run("accounting", options, [{"table": table} for table in tables], measure, timed=False)


def measure(setting: dict) -> dict:
    rows = [row for row in published_fast_blt.rows() if row.table == setting["table"]]
    deviations = [gigabytes(row) / row.gigabytes - 1 for row in rows]
    figures = {
        "gigabytes": max(deviations, key=abs),
        "close": sum(abs(each) <= 0.015 for each in deviations),
        "rows": len(rows),
        **longer_patches(rows),
    }
    for method in ("BLT-S", "BLT-DV"):
        pairs = [(row, passes) for row in rows if row.method == method and (passes := of(row))]
        name = method.lower().replace("-", "_")
        for part, printed in (("decoder", "decoder"), ("global_", "global_")):
            off = [getattr(passes, part) / getattr(row, printed) - 1 for row, passes in pairs]
            figures[f"{name}_{part.strip('_')}"] = max(off, key=abs)
    return figures


def longer_patches(rows) -> dict:
    """What methods read beside plain decoding at the published passes if patches were `LONGER`."""
    printed = {(row.model, row.method, row.setting): row for row in rows}
    (plain,) = (row for row in rows if row.method == "AR")
    longer = plain._replace(global_=plain.text_bytes / LONGER)
    return {"bytes_per_patch": plain.text_bytes / plain.global_} | {
        key: gigabytes(printed[row]) / gigabytes(longer)
        for key, *place in FEWER_PASSES.values()
        if (row := tuple(place)) in printed
    }


def of(row) -> Passes | None:
    """Passes of a text from its acceptance; None where acceptance does not determine them.

    As published, a round makes two full passes: one reads the last byte, another verifies.
    """
    if row.method == "BLT-S":
        decoder = row.drafted + 1
    elif row.method == "BLT-DV" and row.setting == "one-step":
        decoder = 2
    else:
        return None
    rounds = row.text_bytes / calculator.bytes_per_round([row.acceptance] * row.drafted)
    return Passes(decoder * rounds, 2 * rounds, 2 * rounds, 2 * rounds)


def gigabytes(row) -> float:
    """Of the printed passes."""
    passes = Passes(row.decoder, row.global_, row.global_, 0)
    return calculator.bandwidth_gb(passes, published_fast_blt.weights(row.table))


if __name__ == "__main__":
    main()
