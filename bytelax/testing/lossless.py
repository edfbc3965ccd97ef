"""`assert_lossless`, a test that certifies a method as lossless."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.decode import Empty, Method, Params, Sampling, Text, take_all
from bytelax.settings import own_settings
from bytelax.testing.exact_law import distance, exact_law, law_and_kept, target_law

EXACT = 1e-6  # differences of probabilities below this are rounding errors
FAULTY = 1e-3  # a planted fault must change some probability by more than this
NOTHING_KEPT = (
    "the rule kept no drafted byte, so what it keeps was not tested: certify it with a drafter "
    "that proposes bytes which the model may write after this prompt"
)


@own_settings()
def assert_lossless(
    method: Method,
    params: Params,
    *,
    prompt: tuple[int, ...] = (vocab.BOS, vocab.OFFSET, vocab.OFFSET + 1),
    new_bytes: int | None = None,
    rows: int = 64,
    temperature: float = 0.8,
    top_p: float = 0.9,
    top_k: int = 0,
) -> None:
    """Asserts that a method generates what its target alone would generate.

    Three properties are tested. First, the joint distribution of the next `new_bytes` ids is that
    of the target to 1e-6, with every draft, acceptance decision and sampled byte integrated out.
    Second, the bytes and log-probabilities of a row are bitwise the same in any order of the batch
    and with anything in the padding. Third, the same enumeration detects a planted fault: an
    acceptance rule that keeps every draft. A method that drafts and keeps none of its drafts is
    refused, for nothing of its rule was tested. Plain decoding (`decode.Empty`) has no drafts, and
    passes without the third.

    The cost grows with the number of possible drafts, so keep supports small: use a target of 3 or
    4 byte values, or a real vocabulary with a small `top_k`. The drafter must take its random
    numbers from `DraftInput.uniforms` (at most 8), and use them in `decode.draw` or
    `decode.sampling`.

    Args:
      method: the method to certify, with its drafter and acceptance rule.
      params: parameters of target and drafter.
      prompt: ids, BOS first.
      new_bytes: number of ids to enumerate. It should be more than the window, so that a second
        round is tested; by default it is that plus 1, but at most 5.
      rows: batch size of the compiled round.
      temperature: sampling temperature; 0 is greedy.
      top_p: as in `Sampling`.
      top_k: as in `Sampling`.

    Raises:
      AssertionError: the method is not lossless, or that was not tested; the message says what
        differs, and by how much.
    """
    law = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    if new_bytes is None:
        new_bytes = min(method.drafter.draft_length + 2, 5)
    how: dict[str, Any] = {"prompt": list(prompt), "new_bytes": new_bytes, "rows": rows} | law
    own = target_law(method, params, **how)
    found, kept = law_and_kept(method, params, **how)
    off = distance(found, own)
    assert off < EXACT, f"a probability is off by {off:.2g}: the method is not lossless"
    _assert_rows_apart(method, params, prompt, law)
    if isinstance(method.drafter, Empty):
        return
    assert kept > FAULTY, NOTHING_KEPT
    faulty = dataclasses.replace(method, accept=take_all)
    seen = distance(exact_law(faulty, params, **how), own)
    assert seen > FAULTY, (
        f"keeping every draft changes no probability by more than {seen:.2g}, so no refusal was "
        "tested: certify the rule with a drafter that guesses otherwise than the model"
    )


def _assert_rows_apart(method, params, prompt, law, new_bytes=8):
    """Asserts bitwise equality with rows in another order, and with other ids in their padding."""
    lengths = np.arange(len(prompt), 0, -1)
    ids = np.full((len(lengths), len(prompt) + new_bytes), vocab.OFFSET, np.int32)
    ids[:, : len(prompt)] = prompt

    @jax.jit
    def run(ids, lengths, seeds):
        sampling = Sampling.of(len(lengths), **law)
        decoding = method.init(
            params, Text(ids, lengths), budget=new_bytes, seeds=seeds, sampling=sampling,
            log_probs=True,
        )  # fmt: skip
        decoding = method.decode(params, decoding)
        there = jnp.arange(ids.shape[1]) < decoding.text.length[:, None]
        return jnp.where(there, decoding.text.ids, -1), decoding.log_probs

    def of(order, ids):
        rows = run(ids[order], lengths[order], order.astype(np.uint32))
        return [np.asarray(x)[np.argsort(order)] for x in rows]

    order = np.arange(len(lengths))
    behind = np.arange(ids.shape[1]) >= lengths[:, None]
    others = np.where(behind, vocab.OFFSET + 1, ids)
    first = of(order, ids)
    for what, found in {"order": of(order[::-1], ids), "padding": of(order, others)}.items():
        same = all(np.array_equal(a, b) for a, b in zip(first, found, strict=True))
        assert same, f"another {what} of the rows changes their output"
