"""Log-probabilities of the bytes of texts: `score` and `score_many`."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.compiling import late_jit, own_settings
from bytelax.decode.sampling import Sampling, byte_log_probs
from bytelax.model import Model, check_model
from bytelax.progress import Progress, shown
from bytelax.scoring.windows import Pass, Piece, Values, Windows, capacity, run_pieces, run_texts


@dataclasses.dataclass(frozen=True)
class Score:
    """The score of one text.

    Attributes:
      log_probs: log-probability of each byte given those before it, in nats.
    """

    log_probs: Float[np.ndarray, " N"]

    @property
    def bytes(self) -> int:
        """Length of the text in bytes."""
        return len(self.log_probs)

    @property
    def log_prob(self) -> float:
        """Log-probability of the text in nats; 0 for an empty text."""
        return float(self.log_probs.sum(dtype=np.float64))

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte; NaN for an empty text."""
        return self.to_dict()["bits_per_byte"]

    def to_dict(self) -> dict[str, int | float]:
        """Returns "bytes", "log_prob" and "bits_per_byte" as a dict."""
        return figures(self.bytes, self.log_prob)


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of a corpus.

    Attributes:
      documents: scores of the texts, in order.
    """

    documents: list[Score]

    @property
    def bytes(self) -> int:
        """Length of all texts in bytes."""
        return sum(document.bytes for document in self.documents)

    @property
    def log_prob(self) -> float:
        """Log-probability of all texts in nats."""
        return sum((document.log_prob for document in self.documents), 0.0)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte over all bytes, so long texts count for more; NaN without any bytes."""
        return self.to_dict()["bits_per_byte"]

    def to_dict(self) -> dict[str, int | float]:
        """Returns "bytes", "log_prob" and "bits_per_byte" of all texts as a dict."""
        return figures(self.bytes, self.log_prob)


def figures(count: int, log_prob: float) -> dict[str, int | float]:
    """Returns the figures of `count` bytes with this total log-probability in nats."""
    bits = -log_prob / (count * math.log(2)) if count else math.nan
    return {"bytes": count, "log_prob": log_prob, "bits_per_byte": bits}


def score(
    model: Model,
    texts: bytes | str | Iterable[bytes | str],
    *,
    window: int | None = None,
    stride: int | None = None,
    batch: int = 8,
    progress: Progress = False,
) -> Scores:
    """Computes the log-probability of each byte of texts.

    The distribution is that of plain decoding at temperature 1: over bytes and EOS, without the
    other special ids. A text follows a BOS, which is not scored. No EOS is added, so the
    probability of a text is that of all texts that begin with it.

    A text that is longer than the window is read in overlapping windows, each as if a text began
    there. All bytes of the first window are scored, and the last `stride` bytes of the others. So
    every byte is scored once, given at least `window - stride` bytes or all bytes before it.

    Args:
      model: any model; a BLT trained for blocks is read causally.
      texts: bytes of any kind, valid UTF-8 or not, or text, which is encoded as UTF-8; one of
        them, or a list. An empty text has no log-probabilities.
      window: maximum number of bytes that the model sees at once; by default 1023, or the model's
        context if that is shorter.
      stride: number of bytes between windows; by default half of the window. A smaller stride gives
        bytes more context, and takes `window / stride` times as long as reading a text once.
      batch: number of windows in a batch. Memory depends on the batch and the window, and grows by
        four bytes for each byte of the texts.
      progress: True shows a bar on a terminal; a function is called with the number of bytes that
        have just been scored.

    Raises:
      ValueError: the window exceeds the model's context, the stride the window, or the batch is
        less than 1; or the model's logits are NaN or infinite.
    """
    texts = vocab.strings("texts", texts)
    total = None
    if progress and isinstance(texts, Sequence):
        total = sum(len(vocab.as_bytes(text)) for text in texts)
    with shown(progress, "compiling and scoring", total) as advance:
        found = score_many(
            model, texts, window=window, stride=stride, batch=batch, progress=advance
        )
        return Scores(list(found))


def score_many(
    model: Model,
    texts: bytes | str | Iterable[bytes | str],
    *,
    window: int | None = None,
    stride: int | None = None,
    batch: int = 8,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Score]:
    """Scores a stream of texts, and yields their scores in order.

    Args:
      model, texts, window, stride, batch: as in `score`; texts are read a few at a time.
      progress: called with the number of bytes that have just been scored.

    Raises:
      ValueError: as in `score`.
    """
    check_model(model)
    windows = Windows.of(model.config.max_bytes, window, stride)
    values = run_texts(likelihoods(model), texts, windows, batch=batch, progress=progress)
    return (Score(log_probs) for log_probs, _ in _checked(values))


def _checked(found: Iterable[Values]) -> Iterator[Values]:
    for index, (log_probs, likeliest) in enumerate(found):
        if np.isnan(log_probs).any():
            raise ValueError(
                f"the model's logits of text {index} are NaN or infinite; check its weights"
            )
        yield log_probs, likeliest


class Continuation(NamedTuple):
    """How likely a continuation is after its context.

    Attributes:
      log_prob: sum of the log-probabilities of its bytes, in nats.
      greedy: whether each byte is the model's likeliest.
    """

    log_prob: float
    greedy: bool


def score_continuations(
    model: Model, pairs: Sequence[tuple[bytes, bytes]], *, batch: int = 8
) -> Iterator[Continuation]:
    """Scores continuations, each after its own context, and yields their scores in order.

    The distribution is that of `score`.

    Args:
      model: as in `score`.
      pairs: context, which may be empty, and continuation.
      batch: number of pairs, of similar length, in a batch.

    Raises:
      ValueError: a pair exceeds the model's context; or the model's logits are NaN or infinite.
    """
    most = model.config.max_bytes - 1
    longest = max((len(context) + len(text) for context, text in pairs), default=0)
    if longest > most:
        raise ValueError(f"{longest} bytes exceed the model's context of {most}")
    pieces = (
        Piece(context + text, len(context), capacity(len(context) + len(text), most))
        for context, text in pairs
    )
    values = (found for _, found in run_pieces(likelihoods(model), pieces, batch=batch))
    return (
        Continuation(float(log_probs.sum(dtype=np.float64)), bool(likeliest.all()))
        for log_probs, likeliest in _checked(values)
    )


def likelihoods(model: Model) -> Pass:
    """Returns the pass that gives the log-probability of each id and whether it is the argmax."""
    run = functools.partial(_compiled(), model.device_module, model.device_params)
    return lambda ids: run(model.put(ids))


@own_settings()
def _likelihoods(
    module, params, ids: Int[Array, "B S"]
) -> tuple[Float[Array, "B S-1"], Bool[Array, "B S-1"]]:
    law = Sampling.of(len(ids), allow_eos=module.config.eos)
    logits, _ = module.apply({"params": params}, ids, method="predict")
    known = byte_log_probs(logits[:, :-1], law)
    log_probs = jnp.take_along_axis(known, ids[:, 1:, None], axis=-1)[..., 0]
    return log_probs, known.argmax(-1) == ids[:, 1:]


_compiled = late_jit(_likelihoods, static_argnums=0)
