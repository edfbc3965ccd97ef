"""A bytelax model as lm-evaluation-harness drives one (`pip install lm-eval`).

lm_eval.simple_evaluate(HarnessModel(bytelax.load("my-blt"), method="blt-s"), tasks=["piqa"])
"""

from collections.abc import Sequence
from typing import Any

from bytelax.generation import generate
from bytelax.measure import likelihood
from bytelax.model import Model

try:
    from lm_eval.api.model import LM
except ImportError:  # the same methods, for who drives them without the harness
    LM = object


class HarnessModel(LM):
    """Likelihoods by bytes, and texts by any decoding method.

    Args:
      model: from `bytelax.load`.
      batch: texts at a time.
      max_new_bytes: of an answer whose task does not say; what a task says in tokens is taken as
        bytes.
      **options: of the method, as `generate` takes them.
    """

    def __init__(self, model: Model, *, batch: int = 8, max_new_bytes: int = 256, **options):
        super().__init__()
        self._model, self._batch = model, batch
        self._max_new_bytes, self._options = max_new_bytes, options

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Of each continuation behind its context, which loses its beginning if it is too long."""
        pairs = []
        for request in requests:
            context, continuation = (text.encode() for text in request.args)
            fitting = likelihood.fitting(self._model, context, len(continuation))
            pairs.append((fitting, continuation))
        return [tuple(each) for each in self._scored(pairs)]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Of whole texts: in windows, half of each of which is what came before."""
        limit = self._model.config.max_bytes - 1
        totals = []
        for request in requests:
            text = request.args[0].encode()
            pairs = [(b"", text[:limit])]
            for begin in range(limit, len(text), limit // 2):
                new = text[begin : begin + limit // 2]
                pairs.append((text[begin - (limit - limit // 2) : begin], new))
            totals.append(sum(each.log_prob for each in self._scored(pairs)))
        return totals

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """What the method writes up to the first of the request's `until`."""
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
