"""What the studies of speed share: prompts, and a method's figures beside plain decoding."""

import gzip
import pathlib
from collections.abc import Sequence

from bytelax.measure import timing
from bytelax.model import Model


def prompts(data: str, count: int, length: int = 256) -> list[bytes]:
    """Stretches of held-out prose and code, as many bytes each."""
    texts = [
        gzip.decompress(pathlib.Path(f"{data}/{name}/valid.txt.gz").read_bytes())
        for name in ("openstax_ccby", "code_stdlib")
    ]
    stride = min(map(len, texts)) // (count // 2 + 1)
    return [texts[i % 2][(i // 2) * stride :][:length] for i in range(count)]


def measure(model: Model, texts: Sequence[bytes], method: str, settings: dict, **how) -> dict:
    """A row of a report; `how` is that of `timing.beside_plain`."""
    return timing.figures(timing.beside_plain(model, texts, method, settings, **how))


def named(settings: dict) -> str:
    """Settings as a table shows them."""
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name != "draft_model")
