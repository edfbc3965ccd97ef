"""The exact joint distribution of the next bytes under `Method.round`, by enumeration."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bytelax import vocab
from bytelax.compiling import own_jit, own_settings
from bytelax.decode import (
    Acceptance,
    Automaton,
    Decoding,
    Drafter,
    Method,
    Params,
    Sampling,
    Text,
    process_logits,
    stopping,
)
from bytelax.decode.sampling import without_banned
from bytelax.testing.chance import Chance
from bytelax.testing.tables import TableDrafter, TableTarget

Law = dict[tuple[int, ...], float]  # maps the ids after the prompt to their probability

_MOST = 4_000  # texts of a law; drafts multiply them, and minutes become hours


@own_settings()
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
      method: its drafter takes random numbers from `DraftInput.uniforms`, and uses them in
        `decode.sample` or `decode.happens` (see `Chance`). The cost grows with the number of
        possible drafts, so keep supports small.
      params: parameters of target and drafter.
      prompt: ids, BOS first.
      new_bytes: maximum number of ids to emit.
      rows: batch size of the compiled round.
      **law: keywords of `Sampling.of`.

    Returns:
      Probabilities that sum to 1, including those of texts that EOS ended early.
    """
    length = len(prompt) + new_bytes
    begin = started(method, params, [prompt], length=length, budget=new_bytes, rows=rows, **law)
    return law_and_kept(Chance(one_round(method, params), rows), begin)[0]


def started(
    method: Method,
    params: Params,
    prompts: list[list[int]],
    *,
    length: int,
    budget: int,
    rows: int,
    **law,
) -> Decoding:
    """Returns the beginning of a decoding of some prompts, as arrays of the host.

    Args:
      method: the method.
      params: its parameters.
      prompts: ids, BOS first.
      length: number of ids that the buffers hold.
      budget: maximum number of ids to emit.
      rows: batch size at which it is computed, at least that of the prompts.
      **law: keywords of `Sampling.of`.
    """
    start = own_jit(
        lambda params, text: method.init(
            params,
            text,
            budget=budget,
            seeds=jnp.zeros(rows, jnp.uint32),
            sampling=Sampling.of(rows, **law),
        )
    )
    begin = start(params, batch_of(prompts, length, rows))
    return jax.tree.map(lambda x: np.asarray(x)[: len(prompts)], begin)


def one_round(method: Method, params: Params) -> Callable:
    """Returns the program of a round, for `Chance`.

    Its outcomes are the text, -1 after its end, the number of ids that the round emitted, and why
    the row ended. The rest are the decoding after the round and the number of drafted bytes kept.
    """

    def play(decoding):
        after = method.round(params, decoding)
        there = jnp.arange(after.text.ids.shape[1]) < after.text.length[:, None]
        text = jnp.where(there, after.text.ids, -1)
        emitted = after.text.length - decoding.text.length
        kept = after.counts.accepted - decoding.counts.accepted
        return (text, emitted, after.ended), (after, kept)

    return play


def law_and_kept(chance: Chance, begin: Decoding) -> tuple[Law, float]:
    """Returns the law of what follows a decoding, and the expected number of drafted bytes kept.

    Args:
      chance: enumerates the `one_round` of a method.
      begin: a single row, up to whose `limit` is enumerated.
    """
    prompt = int(begin.text.length[0])
    states, weights = begin, np.ones(1)
    total: Law = {}
    total_kept = 0.0
    while len(weights):
        # (text, ids in the last round): (probability, that of the best state, state)
        going: dict[tuple[tuple[int, ...], int], tuple[float, float, Any]] = {}
        for (texts, emitted, ended), (after, kept), row, share in chance.outcomes(states):
            weight = share * weights[row]
            total_kept += float(weight @ kept)
            for i, likeliest, mass in _merged(np.column_stack([texts, emitted]), weight):
                text = tuple(x for x in texts[i, prompt:].tolist() if x >= 0)
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

    It prefills again for every byte and does not use the decoding loop. Arguments as for
    `exact_law`.
    """
    sizes = {"prompt": len(prompt), "length": len(prompt) + new_bytes}
    following = next_byte(method, params, rows=rows, **sizes)
    sampling = dataclasses.replace(Sampling.of(1, **law), vocabulary=method.vocabulary)
    return law_of(following, sampling, prompt, new_bytes)


def next_byte(method: Method, params: Params, *, rows: int, prompt: int, length: int) -> Callable:
    """Returns a function from texts, lists of ids, to the target's probabilities of the next id.

    They are zero where a constraint lets nothing follow, and where the logits are of no law. Its
    second argument is the sampling of one row, which counts for all.

    Args:
      method: its target predicts.
      params: its parameters.
      rows: number of texts that are computed at once.
      prompt: number of ids before the output, which a constraint is about.
      length: maximum number of ids of a text.
    """
    target = method.verifier

    @own_jit
    def after(params, text, sampling, allowed):
        state = target.prefill(params.target, text)
        logits, _ = target.extend(params.target, state, text.pending)
        if params.constraint is not None:
            size = logits.shape[-1]
            allowed = jnp.pad(allowed, ((0, 0), (0, max(size - vocab.SIZE, 0))))[:, None, :size]
            logits = jnp.where(allowed, logits, -jnp.inf)
        return laws(logits, sampling)

    def following(texts, sampling):
        sampling = jax.tree.map(lambda x: np.repeat(x, rows, axis=0), sampling)
        parts = []
        for first in range(0, len(texts), rows):
            some = texts[first : first + rows]
            allowed = np.ones((rows, vocab.SIZE), bool)
            if params.constraint is not None:
                allowed[: len(some)] = [_allowed(params.constraint, text[prompt:]) for text in some]
            going = allowed[: len(some), vocab.OFFSET :].any(axis=1, keepdims=True)
            found = after(params, batch_of(some, length, rows), sampling, allowed)
            parts.append(np.where(going, probabilities(*found)[: len(some)], 0))
        return np.concatenate(parts)

    return following


def laws(
    logits: Float[Array, "B W V"], sampling: Sampling
) -> tuple[Float[Array, "B V"], Float[Array, "B V"]]:
    """Returns the logits of the first position, without banned ids, and their `process_logits`."""
    first = logits[:, :1]
    return without_banned(first, sampling)[:, 0], process_logits(first, sampling)[:, 0]


def probabilities(
    logits: Float[Array, "B V"], log_probs: Float[Array, "B V"]
) -> Float[np.ndarray, "B V"]:
    """Returns the probabilities of `laws` on the host; zeros where the logits are of no law.

    Nothing is written from logits that are NaN or infinite. The loop uses `sampling.has_law`; NumPy
    checks them here, because a certificate must not rest on the code that it certifies.
    """
    sound = np.isfinite(np.asarray(logits).max(-1, keepdims=True))
    return np.where(sound, np.exp(np.asarray(log_probs, np.float64)), 0)


def _allowed(constraint: Automaton, ids: list[int]) -> np.ndarray:
    """Returns bool[260], the ids that may follow an output, by a walk on the host."""
    following: np.ndarray = np.asarray(constraint.following)
    state = int(constraint.start)
    for one in ids:
        state = following[state, one]
    return following[state] >= 0


def law_of(following: Callable, sampling: Sampling, prompt: list[int], new_bytes: int) -> Law:
    """Returns the law of `new_bytes` ids after a prompt, where EOS ends a text; see `next_byte`.

    Raises:
      ValueError: more texts may follow than can be enumerated.
    """
    total: Law = {}
    going: Law = {(): 1.0}
    for step in range(new_bytes):
        laws = following([[*prompt, *text] for text in going], sampling)
        longer: Law = {}
        for (text, before), p in zip(going.items(), laws, strict=True):
            if not p.any():
                total[text] = before
            for x in np.flatnonzero(p):
                ended = step + 1 == new_bytes or x == sampling.vocabulary.eos
                (total if ended else longer)[*text, int(x)] = before * p[x] / p.sum()
            if len(total) + len(longer) > _MOST:
                raise ValueError(
                    f"more than {_MOST:,} texts of {new_bytes} ids may follow the prompt, too many "
                    "to enumerate: use a target of few ids, a top_k of 2 to 4 or fewer new_bytes"
                )
        if not longer:
            break
        going = longer
    return total


def distance(one: Law, other: Law) -> float:
    """Returns the largest difference between two probabilities of the same text."""
    return farthest(one, other)[0]


def farthest(one: Law, other: Law) -> tuple[float, tuple[int, ...]]:
    """Returns the largest difference between two probabilities of the same text, and that text."""
    texts = one.keys() | other.keys()
    return max((abs(one.get(text, 0.0) - other.get(text, 0.0)), text) for text in texts)


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


@own_settings()
def enumerate_rule(
    rule: Acceptance,
    p: Float[np.ndarray, "N V V V"],
    q: Float[np.ndarray, "N V V V"],
    *,
    drafter: Drafter = TableDrafter(2),  # noqa: B008 (a frozen value)
    window: int | None = None,
    rows: int = 512,
) -> list[Law]:
    """Computes the exact distribution of the values that a rule emits in one round.

    Every draft and every random number is integrated out. The model knows V values, and the next
    one depends on the last two. The round begins after two values 0.

    Args:
      rule: the acceptance rule.
      p: N tables of the model: p[n, x, y] is the distribution of the value that follows x and y.
      q: N tables of the drafter.
      drafter: proposes with the table q as its parameters, in logits of ids.
      window: W, as in `Method`; None is the drafter's own.
      rows: batch size of the compiled round.

    Returns:
      For each n the probability of every tuple of 1 to W values that the round may emit.
    """
    many, values = p.shape[:2]
    method = Method(TableTarget(), drafter, rule, window)
    # Table n has byte values of its own, and nothing leads from one table to another.
    tables = Params(_logits(p), _logits(q))
    first = [vocab.OFFSET + n * values for n in range(many)]
    begin = started(
        method,
        tables,
        [[vocab.BOS, x, x] for x in first],
        length=3 + method.window,
        budget=method.window,
        rows=rows,
        temperature=1.0,
    )
    found: list[Law] = [{} for _ in first]
    for (texts, *_), _, row, weight in Chance(one_round(method, tables), rows).outcomes(begin):
        for text, n, share in zip(texts[:, 3:], row, weight, strict=True):
            emitted = tuple((text[text >= 0] - first[n]).tolist())
            found[n][emitted] = found[n].get(emitted, 0.0) + share
    return found


def _logits(tables):
    many, values = tables.shape[:2]
    size = vocab.OFFSET + many * values
    logits = np.zeros((size, size, size), np.float32)
    for n, one in enumerate(tables):
        own = slice(vocab.OFFSET + n * values, vocab.OFFSET + (n + 1) * values)
        logits[own, own] = -np.inf
        with np.errstate(divide="ignore"):
            logits[own, own, own] = np.log(one)
    return jnp.asarray(logits)
