"""Runs every study that is not complete, and makes one report of all of them.

    pip install -e .[report,parity]
    python -m experiments.harness.report --data DIR

Each study runs in a process of its own and goes on where it was interrupted. `--anew` also runs
those that were timed with other code, so that all times are of one commit. The report stands beside
the studies, as `report.md` and, in one file with its figures, `report.html`.
"""

import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

from experiments.harness import discovery, provenance, report_page
from experiments.harness.discovery import Study
from experiments.harness.study import Parser, measured

ROOT = pathlib.Path(__file__).parents[1]


def complete(study: Study, results: pathlib.Path, *, anew: bool = False) -> bool:
    """Whether a study has written all that it measures; with `anew`, what it times of this code."""
    paths = [results / study.name / f"{name}.json" for name in study.results]
    reports = [measured(path) for path in paths]
    return all(report is not None and not (anew and _of_other_code(report)) for report in reports)


def _of_other_code(report: dict) -> bool:
    """Whether the rows are of other code; those of a study that times nothing are kept anyway."""
    return not provenance.counted(report) and report.get("ran", {}).get("code") != provenance.code()


def run(studies: Sequence[Study], options) -> list[str]:
    """Runs what is missing; returns the names of those that failed."""
    missing = [
        study for study in studies if not complete(study, options.results, anew=options.anew)
    ]
    failed, slower = [], 1.0
    for index, study in enumerate(missing):
        left = slower * sum(each.minutes for each in missing[index:])
        print(
            f"[{index + 1}/{len(missing)}] {study.name}: about {slower * study.minutes:.0f} "
            f"minutes; all together about {left:.0f} minutes left",
            flush=True,
        )
        results = options.results / study.name
        begin, anew = time.monotonic(), not any(results.glob("*.json"))
        command = [sys.executable, "-m", f"{study.package}.run", "--results", results]
        command += ["--data", options.data, *(["--smoke"] if options.smoke else [])]
        if subprocess.run(list(map(str, command)), cwd=ROOT.parent, check=False).returncode:
            failed.append(study.name)
        elif anew:  # one that goes on says nothing of what others take
            slower = (time.monotonic() - begin) / 60 / study.minutes
    return failed


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="directory of the data sets")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT)
    parser.add_argument("--only", nargs="*", help="names of studies; by default all")
    parser.add_argument("--smoke", action="store_true", help="a few bytes of everything")
    parser.add_argument("--anew", action="store_true", help="also what was timed with other code")
    parser.add_argument("--build", action="store_true", help="run nothing: report what is there")
    options = parser.parse_args()
    studies = discovery.studies()
    known = {study.name: study for study in studies if study.minutes is not None}
    unknown = set(options.only or ()) - known.keys()
    if unknown:
        parser.error(f"no such study: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.data is None and not options.build:
        parser.error("the studies need --data")
    chosen = [known[name] for name in options.only] if options.only else list(known.values())
    # Studies run in the directory of the package, wherever this was called.
    options.results = options.results.resolve()
    options.data = options.data and pathlib.Path(options.data).resolve()
    options.results.mkdir(parents=True, exist_ok=True)
    failed = [] if options.build else run(chosen, options)
    report_page.build(options.results, studies)
    print(f"{options.results / 'report.html'}")
    for name in failed:
        print(f"{name} failed: it is not in the report, or not complete", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
