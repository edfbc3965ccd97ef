"""Times everything on a processor, one study after another, all rows on one commit.

    python -m experiments.timed --data DIR

It takes hours of two cores, on which nothing else may run. The same command goes on where it was
stopped, as long as nothing changes that decodes. A study whose rivals are not installed says so,
and the next one runs. `--smoke` tries each study on a few bytes.
"""

import subprocess
import sys
import time

from experiments import study

# The figures of the README first; `wall_clock` replays the acceptance that `blt_methods` counts.
STUDIES = (
    "small_lm", "vs_llama_cpp", "vs_peers", "blt_methods", "self_drafting", "wall_clock", "windows",
    "native", "batch", "tuned",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = study.parser(__doc__)
    options = parser.parse_args(arguments)
    flags = ["--data", options.data, *(["--smoke"] if options.smoke else [])]
    if options.results != study.RESULTS:
        flags += ["--results", str(options.results)]
    if not options.smoke and study.commit(*study.CODE).endswith("+"):
        parser.error("code that decodes has changed: commit first, for rows name it")
    outcomes = {}
    for name in STUDIES:
        print(f"\n{name}", flush=True)
        begin = time.monotonic()
        command = [sys.executable, "-m", f"experiments.studies.{name}", *flags]
        status = subprocess.run(command).returncode
        minutes = (time.monotonic() - begin) / 60
        outcomes[name] = "done" if status == 0 else f"exit status {status}"
        outcomes[name] += f" in {minutes:.0f} minutes"
    print("\n" + "\n".join(f"{name}: {outcome}" for name, outcome in outcomes.items()))
    return any(not outcome.startswith("done") for outcome in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())
