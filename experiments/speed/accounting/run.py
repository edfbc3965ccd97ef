"""The calculator beside the tables of Fast BLT: passes from acceptance alone, and gigabytes.

    python -m experiments.speed.accounting.run

Nothing runs: the published acceptance goes in, and passes come out that the paper printed too.
"""

from bytelax import calculator
from bytelax.calculator import Passes
from experiments.harness import published_fast_blt, study

MINUTES = 0.2


def predicted(row):
    """Passes of a text from its acceptance; None where acceptance does not say them."""
    if row.method == "BLT-S":
        per_round = calculator.blt_s(row.drafted, latent="refresh")
    elif row.method == "BLT-DV" and row.setting == "one-step":
        per_round = calculator.blt_dv(1, latent="refresh")
    else:
        return None
    a_round = calculator.bytes_per_round([row.acceptance] * row.drafted)
    return per_round.per_byte(a_round).times(row.text_bytes)


def gigabytes(row):
    """Of the printed passes."""
    passes = Passes(row.decoder, row.global_, row.global_, 0)
    return calculator.bandwidth_gb(passes, published_fast_blt.weights(row.table))


def measure(setting):
    """Deviations of one table's rows, as shares of what is printed."""
    rows = [row for row in published_fast_blt.rows() if row.table == setting["table"]]
    figures = {"rows": len(rows), "gigabytes": [gigabytes(r) / r.gigabytes - 1 for r in rows]}
    for method in ("BLT-S", "BLT-DV"):
        pairs = [(r, predicted(r)) for r in rows if r.method == method and predicted(r)]
        figures[method] = {
            "decoder": [p.decoder / r.decoder - 1 for r, p in pairs],
            "global": [p.global_ / r.global_ - 1 for r, p in pairs],
        }
    return figures


def main():
    options = study.parser(__doc__, __file__, model=None).parse_args()
    tables = dict.fromkeys(row.table for row in published_fast_blt.rows())
    study.run(
        options.results / "results.json",
        {"paper": "arXiv 2605.08044v1, Tables 3 to 10"},
        [{"table": table} for table in tables],
        measure,
        markdown=markdown,
    )


def markdown(report):
    columns = [(method, passes) for method in ("BLT-S", "BLT-DV") for passes in ("decoder",
               "global")]  # fmt: skip

    def worst(values):
        return f"{100 * max(values, key=abs):+.1f}"

    rows = [
        (
            row["setting"]["table"],
            *(worst(row[method][passes]) for method, passes in columns),
            worst(row["gigabytes"]),
            f"{sum(abs(x) <= 0.015 for x in row['gigabytes'])} of {row['rows']}",
        )
        for row in report["rows"]
    ]
    every = [x for row in report["rows"] for x in row["gigabytes"]]
    return "\n".join(
        [
            "# The calculator beside the tables of Fast BLT",
            "",
            f"{report['paper']}. Largest deviation from the printed figure in %, of passes "
            "predicted from the printed acceptance (rows of BLT-S, and of BLT-DV in one step), and "
            "of gigabytes computed from the printed passes and weights (all rows).",
            "",
            *study.table(
                ("table", *(f"{method}: {passes} passes" for method, passes in columns),
                 "gigabytes", "within 1.5 %"),
                rows,
            ),
            "",
            f"Gigabytes are within 1.5 % on {sum(abs(x) <= 0.015 for x in every)} of "
            f"{len(every)} rows. A one-step BLT-DV makes as many decoder passes as global ones, "
            "and rounds vary more from text to text than one rate of acceptance can say: its mean "
            "number of rounds is above what the mean rate gives.",
            "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    main()
