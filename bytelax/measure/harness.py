"""A bytelax model for lm-evaluation-harness (`pip install lm-eval`).

lm_eval.simple_evaluate(HarnessModel(bytelax.load("my-blt"), method="blt-s"), tasks=["piqa"])
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bytelax.decode import stopping
from bytelax.model import Model
from bytelax.running import Statistics, generate_many
from bytelax.scoring import score_continuations, score_many

try:
    from lm_eval.api.model import LM
except ImportError:  # the methods also work without the harness
    LM = object

# The names by which tasks give the maximum length of an answer; the first one prevails.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_KNOWN = {"until", "do_sample", "temperature", "top_k", "top_p", *_LENGTHS}


class HarnessModel(LM):
    """A model for lm-evaluation-harness: likelihoods by bytes, and text by any decoding method.

    Each answer goes into the cache of the harness as soon as it is there, so that an interrupted
    evaluation with `use_cache` goes on where it was.

    Attributes:
      stats: the statistics of each text that was generated.

    Args:
      model: from `bytelax.load`.
      batch: number of texts that are scored or generated together.
      max_new_bytes: maximum number of bytes of an answer, if the task does not give one; a number
        of tokens given by a task is taken as bytes.
      seed: seed of the first text that is sampled; the others count on from there.
      **options: keywords of `generate`, such as the method and its options. They prevail over what
        a task asks for.

    Raises:
      ValueError: an option is wrong, or the model cannot run the method.
    """

    def __init__(
        self, model: Model, *, batch: int = 8, max_new_bytes: int = 256, seed: int = 0, **options
    ):
        super().__init__()
        self._model, self._batch, self._seed = model, batch, seed
        self._max_new_bytes, self._options = max_new_bytes, options
        self.stats: list[Statistics] = []
        generate_many(model, (), batch=batch, seeds=seed, **options)  # checks the options

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Returns log-probability (nats) and greediness of each continuation after its context.

        A context that is too long loses its beginning.

        Raises:
          ValueError: a continuation alone exceeds the model's context.
        """
        pairs = []
        for request in requests:
            context, continuation = (text.encode() for text in request.args)
            pairs.append((self._fitting(context, len(continuation)), continuation))
        found = score_continuations(self._model, pairs, batch=self._batch)
        return [
            self._kept("loglikelihood", request, tuple(each))
            for request, each in zip(requests, found, strict=True)
        ]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Returns the log-probability of whole texts, in nats.

        A text beyond the model's context is scored in windows whose first half is the text before
        them.
        """
        limit = self._model.config.max_bytes - 1
        texts = (request.args[0] for request in requests)
        found = score_many(
            self._model, texts, window=limit, stride=max(1, limit // 2), batch=self._batch
        )
        return [
            self._kept("loglikelihood_rolling", request, each.log_prob)
            for request, each in zip(requests, found, strict=True)
        ]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Returns the continuation of each request up to its first `until` string.

        A context that is too long loses its beginning. Requests with the same settings are
        generated together.

        Raises:
          ValueError: the settings ask for what `generate` does not have, such as beams, or for
            an answer that fills the model's context; or the model's logits are NaN or infinite.
        """
        alike: dict[_Settings, list[tuple[bytes, Any, int]]] = {}
        for place, request in enumerate(requests):
            context, asked = request.args
            settings = _Settings.of(asked, self._max_new_bytes)
            prompt = self._fitting(context.encode(), settings.max_new_bytes) or context
            alike.setdefault(settings, []).append((prompt, request, place))
        texts, seed = [""] * len(requests), self._seed
        for settings, rows in alike.items():
            rows.sort(key=lambda row: -len(row[0]))  # all fit into the buffers of the longest
            found = generate_many(
                self._model,
                [prompt for prompt, *_ in rows],
                batch=self._batch,
                seeds=seed,
                **(settings._asdict() | self._options),
            )
            for result in found:
                _, request, place = rows[result.index]
                if result.stop == stopping.REASONS[stopping.NOT_FINITE]:
                    raise ValueError("the model's logits are NaN or infinite; check its weights")
                texts[place] = self._kept("generate_until", request, result.text)
                self.stats.append(result.stats)
            seed += len(rows)
        return texts

    def _fitting(self, context: bytes, room: int) -> bytes:
        """Cuts the beginning of a context so that `room` more bytes fit into the model's."""
        kept = max(self._model.config.max_bytes - 1 - room, 0)
        return context[max(len(context) - kept, 0) :]

    def _kept(self, kind: str, request: Any, answer: Any) -> Any:
        """Returns an answer, and hands it to the cache of the harness if there is one."""
        if LM is not object:
            self.cache_hook.add_partial(kind, request.args, answer)
        return answer


class _Settings(NamedTuple):
    """Keywords of `generate` that a task asks for."""

    max_new_bytes: int
    stop: tuple[str, ...]
    temperature: float
    top_k: int
    top_p: float

    @classmethod
    def of(cls, asked: Mapping[str, Any], max_new_bytes: int) -> "_Settings":
        """Reads the `generation_kwargs` of a task.

        Raises:
          ValueError: they ask for something that `generate` does not have.
        """
        unknown = asked.keys() - _KNOWN - ({"num_beams"} if asked.get("num_beams") == 1 else set())
        if unknown:
            raise ValueError(
                f"bytelax generates without {', '.join(sorted(unknown))}: "
                "leave it out of the task's generation_kwargs"
            )
        until = asked.get("until") or ()
        sampled = asked.get("do_sample")
        if sampled is None:  # then a temperature asks for it, as elsewhere in the harness
            sampled = asked.get("temperature", 0) > 0
        return cls(
            max_new_bytes=next((asked[name] for name in _LENGTHS if name in asked), max_new_bytes),
            stop=tuple(filter(None, (until,) if isinstance(until, str) else until)),
            temperature=float(asked.get("temperature", 1)) if sampled else 0.0,
            top_k=asked.get("top_k", 0),
            top_p=asked.get("top_p", 1.0),
        )
