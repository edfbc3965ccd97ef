"""How likely a model thinks texts are: `score`."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode.sampling import Sampling, byte_log_probs
from bytelax.long_reductions import compiler_options
from bytelax.model import Model
from bytelax.windows import Tell, Windows, tell_texts


@dataclasses.dataclass(frozen=True)
class Score:
    """A text under a model.

    Attributes:
      log_probs: of each byte behind those before it, nats.
    """

    log_probs: Float[np.ndarray, " N"]

    @property
    def bytes(self) -> int:
        """How many there are."""
        return len(self.log_probs)

    @property
    def log_prob(self) -> float:
        """Of the text, nats: the sum; 0 for an empty one."""
        return float(self.log_probs.sum(dtype=np.float64))

    @property
    def bits_per_byte(self) -> float:
        """NaN for an empty text."""
        return self.to_dict()["bits_per_byte"]

    def to_dict(self) -> dict[str, int | float]:
        """All but the bytes' own: "bytes", "log_prob" and "bits_per_byte"."""
        return figures(self.bytes, self.log_prob)


@dataclasses.dataclass(frozen=True)
class Scores:
    """A corpus under a model.

    Attributes:
      documents: the scores of its texts, in order.
    """

    documents: list[Score]

    @property
    def bytes(self) -> int:
        """How many there are in all texts."""
        return sum(document.bytes for document in self.documents)

    @property
    def log_prob(self) -> float:
        """Of all texts, nats: the sum."""
        return sum((document.log_prob for document in self.documents), 0.0)

    @property
    def bits_per_byte(self) -> float:
        """Over all bytes, so that long texts count for more; NaN where there are none."""
        return self.to_dict()["bits_per_byte"]

    def to_dict(self) -> dict[str, int | float]:
        """Of all texts: "bytes", "log_prob" and "bits_per_byte"."""
        return figures(self.bytes, self.log_prob)


def figures(count: int, log_prob: float) -> dict[str, int | float]:
    """What so many bytes of this log-probability come to."""
    bits = -log_prob / (count * math.log(2)) if count else math.nan
    return {"bytes": count, "log_prob": log_prob, "bits_per_byte": bits}


def score(
    model: Model,
    texts: Iterable[bytes | str],
    *,
    window: int | None = None,
    stride: int | None = None,
    batch: int = 8,
) -> Scores:
    """Scores texts: the log-probability of each of their bytes.

    The distribution is that of plain decoding at temperature 1: over bytes and EOS, without other
    special ids. A text follows a BOS, which is not scored, and no EOS is added, so its probability
    is that of every text that begins with it.

    A text that is longer than the window is read in several, each as if a text began there. The
    bytes of the first are all scored, and then the last `stride` of each. So every byte is scored
    once, behind at least `window - stride` bytes or all there are.

    Args:
      model: any; a BLT trained for blocks is read causally.
      texts: bytes of any kind, valid UTF-8 or not, or text that is encoded as UTF-8. An empty text
        has no log-probabilities.
      window: most bytes that the model sees at once; by default 1023, or its context if shorter.
      stride: by default half of the window. A small one gives bytes more context, and takes
        `window / stride` times as long as reading the text once.
      batch: windows that are scored together. Memory depends on this and the window; beside that
        it takes four bytes for each byte of the texts.

    Raises:
      ValueError: the window exceeds the model's context, the stride the window, or the batch is
        less than 1.
    """
    found = score_many(model, texts, window=window, stride=stride, batch=batch)
    return Scores(list(found))


def score_many(
    model: Model,
    texts: Iterable[bytes | str],
    *,
    window: int | None = None,
    stride: int | None = None,
    batch: int = 8,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Score]:
    """Scores any number of texts, and yields the scores in the order of the texts.

    Args:
      model: as in `score`.
      texts: as in `score`; taken a few at a time, as they are needed.
      window: as in `score`.
      stride: as in `score`.
      batch: as in `score`.
      progress: called with the number of bytes that have just been scored.

    Raises:
      ValueError: as in `score`.
    """
    windows = Windows.of(model.config.max_bytes, window, stride)
    told = tell_texts(likelihoods(model), texts, windows, batch=batch, progress=progress)
    return (Score(log_probs) for log_probs, _ in told)


def likelihoods(model: Model) -> Tell:
    """Of padded rows, the log-probability of each id and whether it is the likeliest."""
    return functools.partial(_compiled(), model.module, model.device_params)


@functools.cache
def _compiled():
    return jax.jit(_likelihoods, static_argnums=0, compiler_options=compiler_options())


def _likelihoods(
    module, params, ids: Int[Array, "B S"]
) -> tuple[Float[Array, "B S-1"], Bool[Array, "B S-1"]]:
    known = byte_log_probs(Model(module, params).logits(ids)[:, :-1], Sampling.of(len(ids)))
    log_probs = jnp.take_along_axis(known, ids[:, 1:, None], axis=-1)[..., 0]
    return log_probs, known.argmax(-1) == ids[:, 1:]
