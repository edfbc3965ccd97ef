"""Runs every study that is not complete, and makes one report of all of them.

    pip install -e .[report,parity]
    python experiments/report.py --data DIR

Each study runs in a process of its own and goes on where it was interrupted. The report stands in
the directory of the results, as `report.md` and, in one file with its figures, `report.html`.
"""

import json
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

import report_page
from study import RESULTS, Parser

HERE = pathlib.Path(__file__).parent


class Study(NamedTuple):
    """A study and how it is run.

    Attributes:
      name: of its results.
      minutes: about what it takes on two cores of a processor.
      arguments: beyond those that every study takes.
      script: by default as the name.
    """

    name: str
    minutes: float
    arguments: tuple[str, ...] = ()
    script: str | None = None


STUDIES = (
    Study("accounting", 0.2),
    Study("blt_methods", 40),
    Study("blt_methods_sampled", 25,
          ("--temperature", "1", "--only", "blt-s", "blt-dv", "--name", "blt_methods_sampled"),
          "blt_methods"),
    Study("self_drafting", 30),
    Study("batch", 25),
    Study("wall_clock", 15),
    Study("vs_peers", 15),
    Study("fast_blt", 60),
    Study("acceptance", 20),
    Study("diversity", 15),
    Study("likelihood", 30),
    Study("agreement", 10),
    Study("exactness", 15),
    Study("joint_heads", 15),
)  # fmt: skip


def complete(path: pathlib.Path) -> bool:
    """Whether a study has written all that it measures."""
    return path.exists() and json.loads(path.read_text()).get("complete", False)


def run(studies, options) -> list[str]:
    """Runs what is missing; returns the names of those that failed."""
    missing = [s for s in studies if not complete(options.results / f"{s.name}.json")]
    failed, slower = [], 1.0
    for index, study in enumerate(missing):
        left = slower * sum(each.minutes for each in missing[index:])
        print(
            f"[{index + 1}/{len(missing)}] {study.name}: about {slower * study.minutes:.0f} "
            f"minutes; all together about {left:.0f} minutes left",
            flush=True,
        )
        begin, anew = time.monotonic(), not (options.results / f"{study.name}.json").exists()
        script = HERE / f"{study.script or study.name}.py"
        command = [sys.executable, script, "--results", options.results, *study.arguments]
        command += ["--data", options.data, *(["--smoke"] if options.smoke else [])]
        if subprocess.run(list(map(str, command)), check=False).returncode:
            failed.append(study.name)
        elif anew:  # one that goes on says nothing of what others take
            slower = (time.monotonic() - begin) / 60 / study.minutes
    return failed


def main() -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="directory of the data sets")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--only", nargs="*", help="names of studies; by default all")
    parser.add_argument("--smoke", action="store_true", help="a few bytes of everything")
    parser.add_argument("--build", action="store_true", help="run nothing: report what is there")
    options = parser.parse_args()
    known = {study.name: study for study in STUDIES}
    unknown = set(options.only or ()) - known.keys()
    if unknown:
        parser.error(f"no such study: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.data is None and not options.build:
        parser.error("the studies need --data")
    chosen = [known[name] for name in options.only] if options.only else STUDIES
    options.results.mkdir(parents=True, exist_ok=True)
    failed = [] if options.build else run(chosen, options)
    report_page.build(options.results, list(known))
    print(f"{options.results / 'report.html'}")
    for name in failed:
        print(f"{name} failed: it is not in the report, or not complete", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
