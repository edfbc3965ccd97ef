"""`assert_lossless`: the certificate of a pair of target and drafter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Text, take_all
from bytelax.testing.exact_law import distance, exact_law, target_law

EXACT = 1e-6  # the largest difference of two probabilities that is rounding
FAULTY = 1e-3  # what a planted fault must change at least


def assert_lossless(
    method: Method,
    params: Params,
    *,
    prompt: tuple[int, ...] = (vocab.BOS, vocab.OFFSET, vocab.OFFSET + 1),
    new_bytes: int = 3,
    rows: int = 64,
    temperature: float = 0.8,
    top_p: float = 0.9,
    top_k: int = 0,
) -> None:
    """Asserts that a method writes what its target alone would.

    Three things: the joint distribution of the next `new_bytes` ids, with every draft, verdict and
    drawn byte integrated out, is the target's to 1e-6; a row's bytes and log-probabilities are the
    same bits in any order of the batch and with anything behind the text; and the same enumeration
    sees a fault that is planted, an acceptance rule that keeps every draft.

    Its work is the number of drafts that can be made, so keep supports small: a target of 3 or 4
    byte values, or a real vocabulary with a small `top_k`. The drafter must take its random numbers
    from `DraftInput.uniforms` (at most 8), and use them in `decode.draw` or `decode.sampling`.

    Args:
      method: to be certified, drafter and acceptance rule.
      params: of target and drafter.
      prompt: ids, BOS first.
      new_bytes: ids to enumerate; more than the window, so that a second round is seen.
      rows: batch of the compiled round.
      temperature: of the request; 0 is greedy.
      top_p: of the request.
      top_k: of the request.

    Raises:
      AssertionError: what is wrong, and by how much.
    """
    law = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    how = {"prompt": list(prompt), "new_bytes": new_bytes, "rows": rows} | law
    own = target_law(method, params, **how)
    off = distance(exact_law(method, params, **how), own)
    assert off < EXACT, f"a probability is off by {off:.2g}: the method is not lossless"
    _assert_rows_apart(method, params, prompt, law)
    faulty = dataclasses.replace(method, accept=take_all)
    seen = distance(exact_law(faulty, params, **how), own)
    assert seen > FAULTY, f"keeping every draft changes no probability by more than {seen:.2g}"


def _assert_rows_apart(method, params, prompt, law, new_bytes=8):
    """Bitwise: rows in another order, and with other ids in their padding."""
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
