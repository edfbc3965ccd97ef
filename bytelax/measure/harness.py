"""A bytelax model for lm-evaluation-harness (`pip install lm-eval`).

lm_eval.simple_evaluate(HarnessModel(bytelax.load("my-blt"), method="blt-s"), tasks=["piqa"])
"""

from collections.abc import Sequence
from typing import Any

from bytelax.generation import generate
from bytelax.measure import likelihood
from bytelax.model import Model
from bytelax.scoring import score

try:
    from lm_eval.api.model import LM
except ImportError:  # the methods also work without the harness
    LM = object


class HarnessModel(LM):
    """A model for lm-evaluation-harness: likelihoods by bytes, and text by any decoding method.

    Args:
      model: from `bytelax.load`.
      batch: number of texts scored at a time.
      max_new_bytes: maximum number of bytes of an answer, if the task does not give one; a number
        of tokens given by a task is taken as bytes.
      **options: options of the decoding method, as in `generate`.
    """

    def __init__(self, model: Model, *, batch: int = 8, max_new_bytes: int = 256, **options):
        super().__init__()
        self._model, self._batch = model, batch
        self._max_new_bytes, self._options = max_new_bytes, options

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Returns log-probability (nats) and greediness of each continuation after its context.

        A context that is too long loses its beginning.
        """
        pairs = []
        for request in requests:
            context, continuation = (text.encode() for text in request.args)
            fitting = likelihood.fitting(self._model, context, len(continuation))
            pairs.append((fitting, continuation))
        return [tuple(each) for each in self._scored(pairs)]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Returns the log-probability of whole texts, in nats.

        A text beyond the model's context is scored in windows whose first half is the text before
        them.
        """
        limit = self._model.config.max_bytes - 1
        found = score(
            self._model, [request.args[0].encode() for request in requests],
            window=limit, stride=max(1, limit // 2), batch=self._batch,
        )  # fmt: skip
        return [document.log_prob for document in found.documents]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Returns the continuation of each request up to its first `until` string."""
        return [self._answer(*request.args) for request in requests]

    def _answer(self, context: str, wanted: dict) -> str:
        until = wanted.get("until") or ()
        until = (until,) if isinstance(until, str) else tuple(until)
        new = wanted.get("max_gen_toks", self._max_new_bytes)
        sampled = wanted.get("do_sample", False)
        prompt = likelihood.fitting(self._model, context.encode(), new) or context.encode()
        out = generate(
            self._model, [prompt], max_new_bytes=new, stop=[stop for stop in until if stop],
            temperature=wanted.get("temperature", 1.0) if sampled else 0.0,
            top_p=wanted.get("top_p", 1.0) if sampled else 1.0, **self._options,
        )  # fmt: skip
        return out.text[0]

    def _scored(self, pairs):
        return likelihood.continuations(self._model, pairs, batch=self._batch)
