"""The joint law of the next bytes under `Method.round`, by enumeration."""

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Text, process_logits, stopping
from bytelax.testing.chance import Chance

Law = dict[tuple[int, ...], float]  # probability by the ids that follow the prompt


def exact_law(
    method: Method,
    params: Params,
    *,
    prompt: list[int],
    new_bytes: int,
    rows: int = 512,
    **law,
) -> Law:
    """The law of what is generated within a budget of `new_bytes`, several rounds or one.

    Every draft, every verdict and every drawn byte is integrated out of `Method.round`. After each
    round, equal texts go on as one, from the likeliest of their states, if the round emitted as
    many of their ids: so that what `commit` keeps of a whole and of a cut window both go on.

    Args:
      method: its drafter takes its random numbers from `DraftInput.uniforms` (at most 8 of them)
        and uses them in `sampling.sample` or `sampling.happens`, called on the module (see
        `Chance`). The work is the number of drafts it can make: keep supports small.
      params: of target and drafter.
      prompt: ids, BOS first.
      new_bytes: the budget.
      rows: batch of the compiled round.
      **law: of `Sampling.of`.

    Returns:
      Probabilities that sum to 1, also of texts that an EOS ended early.
    """
    sampling_law = Sampling.of(rows, **law)

    def play(decoding):
        after = method.round(params, decoding)
        there = jnp.arange(after.text.ids.shape[1]) < after.text.length[:, None]
        text = jnp.where(there, after.text.ids, -1)
        return (text, after.text.length - decoding.text.length, after.ended), after

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
    while len(weights):
        going = {}  # by text and ids of the last round: probability, of the likeliest state, state
        for (texts, emitted, ended), after, row, share in chance.outcomes(states):
            weight = share * weights[row]
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
    return total


def target_law(
    method: Method,
    params: Params,
    *,
    prompt: list[int],
    new_bytes: int,
    rows: int = 512,
    **law,
) -> Law:
    """The law of the same bytes under the target alone: arguments as for `exact_law`.

    It is read off one byte at a time behind a fresh prefill, without the loop.
    """
    sampling_law, target = Sampling.of(rows, **law), method.verifier

    @jax.jit
    def following(text):
        state = target.prefill(params.target, text)
        pending = jnp.take_along_axis(text.ids, text.length[:, None] - 1, axis=1)
        logits, _ = target.extend(params.target, state, pending, running=jnp.ones(rows, bool))
        return process_logits(logits, sampling_law)[:, 0]

    total: Law = {}
    going = {(): 1.0}
    for step in range(new_bytes):
        longer = {}
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
    """The largest difference of two probabilities."""
    return max(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in one.keys() | other.keys())


def batch_of(texts: list, length: int, rows: int) -> Text:
    """`rows` texts in buffers of `length`, the first one again behind the last."""
    texts = texts + [texts[0]] * (rows - len(texts))
    ids = np.zeros((rows, length), np.int32)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    return Text(jnp.asarray(ids), jnp.asarray([len(text) for text in texts], jnp.int32))


def _row(batch, row):
    return jax.tree.map(lambda x: x[row], batch)


def _merged(keys, weights):
    """(a row, its heaviest row, its weight) of each distinct key."""
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    which = which.ravel()
    order = np.lexsort((weights, which))
    heaviest = order[np.flatnonzero(np.diff(which[order], append=-1))]
    return zip(first, heaviest, np.bincount(which, weights), strict=True)
