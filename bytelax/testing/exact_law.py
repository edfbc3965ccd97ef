"""The exact joint distribution of the next bytes under `Method.round`, by enumeration."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Text, process_logits, stopping
from bytelax.settings import own_settings
from bytelax.testing.chance import Chance

Law = dict[tuple[int, ...], float]  # maps the ids after the prompt to their probability


def exact_law(
    method: Method,
    params: Params,
    *,
    prompt: list[int],
    new_bytes: int,
    rows: int = 512,
    **law,
) -> Law:
    """Computes the exact joint distribution of what a method generates within `new_bytes` ids.

    Every draft, acceptance decision and sampled byte of `Method.round` is integrated out, over as
    many rounds as it takes. After each round, equal texts are merged if the round emitted equally
    many ids, and continue from the likeliest of their states. Texts with other numbers of ids stay
    apart, so that the states after `commit` of a whole window and of a part of one are both
    followed.

    Args:
      method: its drafter takes random numbers from `DraftInput.uniforms` (at most 8), and uses them
        in `decode.sample` or `decode.happens` (see `Chance`). The cost grows with the number of
        possible drafts, so keep supports small.
      params: parameters of target and drafter.
      prompt: ids, BOS first.
      new_bytes: maximum number of ids to emit.
      rows: batch size of the compiled round.
      **law: keywords of `Sampling.of`.

    Returns:
      Probabilities that sum to 1, including those of texts that EOS ended early.
    """
    return law_and_kept(method, params, prompt=prompt, new_bytes=new_bytes, rows=rows, **law)[0]


@own_settings()
def law_and_kept(
    method: Method, params: Params, *, prompt: list[int], new_bytes: int, rows: int, **law
) -> tuple[Law, float]:
    """Returns `exact_law` and the expected number of drafted bytes that the method keeps."""
    sampling_law = Sampling.of(rows, **law)

    def play(decoding):
        after = method.round(params, decoding)
        there = jnp.arange(after.text.ids.shape[1]) < after.text.length[:, None]
        text = jnp.where(there, after.text.ids, -1)
        emitted = after.text.length - decoding.text.length
        kept = after.counts.accepted - decoding.counts.accepted
        return (text, emitted, after.ended), (after, kept)

    chance = Chance(play, rows)
    begin = method.init(
        params,
        batch_of([prompt], len(prompt) + new_bytes, rows),
        budget=new_bytes,
        seeds=jnp.zeros(rows, jnp.uint32),
        sampling=sampling_law,
    )
    states, weights = jax.tree.map(lambda x: np.asarray(x)[:1], begin), np.ones(1)
    total: Law = {}
    total_kept = 0.0
    while len(weights):
        # (text, ids in the last round): (probability, that of the best state, state)
        going: dict[tuple[tuple[int, ...], int], tuple[float, float, Any]] = {}
        for (texts, emitted, ended), (after, kept), row, share in chance.outcomes(states):
            weight = share * weights[row]
            total_kept += float(weight @ kept)
            for i, likeliest, mass in _merged(np.column_stack([texts, emitted]), weight):
                text = tuple(x for x in texts[i, len(prompt) :].tolist() if x >= 0)
                if ended[i] != stopping.RUNNING:
                    total[text] = total.get(text, 0.0) + mass
                    continue
                before, best, state = going.get((text, emitted[i]), (0.0, 0.0, None))
                if weight[likeliest] > best:
                    best, state = weight[likeliest], _row(after, likeliest)
                going[text, emitted[i]] = before + mass, best, state
        weights = np.array([mass for mass, _, _ in going.values()])
        if going:
            states = jax.tree.map(lambda *x: np.stack(x), *(state for *_, state in going.values()))
    return total, total_kept


@own_settings()
def target_law(
    method: Method,
    params: Params,
    *,
    prompt: list[int],
    new_bytes: int,
    rows: int = 512,
    **law,
) -> Law:
    """Computes the joint distribution of the same bytes under the target alone.

    It prefills anew for every byte and does not use the decoding loop. Arguments as for
    `exact_law`.
    """
    sampling_law, target = Sampling.of(rows, **law), method.verifier

    @jax.jit
    def following(text):
        state = target.prefill(params.target, text)
        pending = jnp.take_along_axis(text.ids, text.length[:, None] - 1, axis=1)
        logits, _ = target.extend(params.target, state, pending, running=jnp.ones(rows, bool))
        return process_logits(logits, sampling_law)[:, 0]

    total: Law = {}
    going: Law = {(): 1.0}
    for step in range(new_bytes):
        longer: Law = {}
        known = list(going)
        for first in range(0, len(known), rows):
            some = known[first : first + rows]
            full = batch_of([[*prompt, *text] for text in some], len(prompt) + new_bytes, rows)
            laws = np.exp(np.asarray(following(full), np.float64))
            for text, p in zip(some, laws, strict=False):
                for x in np.flatnonzero(p):
                    ended = step + 1 == new_bytes or x == vocab.EOS
                    (total if ended else longer)[*text, int(x)] = going[text] * p[x] / p.sum()
        going = longer
    return total


def distance(one: Law, other: Law) -> float:
    """Returns the largest difference between two probabilities of the same text."""
    return max(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in one.keys() | other.keys())


def batch_of(texts: list, length: int, rows: int) -> Text:
    """Packs texts into a batch of `rows` rows, repeating the first text to fill it up."""
    texts = texts + [texts[0]] * (rows - len(texts))
    ids = np.zeros((rows, length), np.int32)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    return Text(jnp.asarray(ids), jnp.asarray([len(text) for text in texts], jnp.int32))


def _row(batch, row):
    return jax.tree.map(lambda x: x[row], batch)


def _merged(keys, weights):
    """Returns (a row, its heaviest row, the total weight) for each distinct key."""
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    which = which.ravel()
    order = np.lexsort((weights, which))
    heaviest = order[np.flatnonzero(np.diff(which[order], append=-1))]
    return zip(first, heaviest, np.bincount(which, weights), strict=True)
