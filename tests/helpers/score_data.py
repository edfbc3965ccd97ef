"""The least of every data set that the studies of scores read, made up here."""

import gzip
import json

import numpy as np

WORDS = [b"the ", b"cell ", b"membrane ", b"is ", b"def ", b"return ", b"and ", b"of ", b"\n"]
PAIRS = [(f"Ich sehe {n} Zellen.", f"I see {n} cells.") for n in range(30)]


def write(root):
    """Writes all of them below `root`."""
    rng = np.random.default_rng(0)
    texts = (
        "openstax_ccby", "eltec_eng", "code_stdlib", "code_networkx", "code_thealgorithms",
        "tinyshakespeare",
    )  # fmt: skip
    for name in texts:
        (root / name).mkdir()
        text = b"".join(WORDS[i] for i in rng.integers(len(WORDS), size=300))
        for part in ("train-00", "valid", "test"):
            (root / name / f"{part}.txt.gz").write_bytes(gzip.compress(text))
        (root / name / "input.txt").write_bytes(text)
    for name in ("deu", "fra"):
        folder = root / f"tatoeba_{name}_eng"
        folder.mkdir()
        rows = [{"src": source, "refs": [target, f"{target}!"]} for source, target in PAIRS]
        for split in ("valid", "test"):
            _lines(folder / f"{split}.{name}2eng.jsonl", map(json.dumps, rows))
        for part in ("train", "valid", "test"):
            _lines(folder / f"{part}.tsv", map("\t".join, PAIRS))
        (folder / "train.tsv.gz").write_bytes(gzip.compress((folder / "train.tsv").read_bytes()))
    (root / "flores200" / "dev").mkdir(parents=True)
    for name, side in (("deu", 0), ("fra", 0), ("eng", 1)):
        _lines(root / "flores200" / "dev" / f"{name}_Latn.dev", [pair[side] for pair in PAIRS])
    (root / "piqa").mkdir()
    question = {"goal": "Open it", "sol1": "pull", "sol2": "push it away"}
    _lines(root / "piqa" / "valid.jsonl", 4 * [json.dumps(question)])
    _lines(root / "piqa" / "valid-labels.lst", "0011")
    (root / "humaneval").mkdir()
    programs = 6 * (json.dumps({"prompt": "def f():\n"}) + "\n")
    (root / "humaneval" / "HumanEval.jsonl.gz").write_bytes(gzip.compress(programs.encode()))


def _lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
