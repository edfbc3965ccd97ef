"""The least of every corpus that studies read, made up here."""

import gzip

import numpy as np

WORDS = [b"the ", b"cell ", b"membrane ", b"is ", b"def ", b"return ", b"and ", b"of ", b"\n"]
PAIRS = [(f"Ich sehe {n} Zellen.", f"I see {n} cells.") for n in range(30)]


def write(root):
    """Writes all of them below `root`."""
    rng = np.random.default_rng(0)
    for name in ("openstax_ccby", "eltec_eng", "code_stdlib"):
        (root / name).mkdir()
        text = b"".join(WORDS[i] for i in rng.integers(len(WORDS), size=300))
        for split in ("valid", "test"):
            (root / name / f"{split}.txt.gz").write_bytes(gzip.compress(text))
    for name in ("deu", "fra"):
        folder = root / f"tatoeba_{name}_eng"
        folder.mkdir()
        rows = "\n".join(map("\t".join, PAIRS)) + "\n"
        (folder / "train.tsv.gz").write_bytes(gzip.compress(rows.encode()))
        for split in ("valid", "test"):
            (folder / f"{split}.tsv").write_text(rows)
