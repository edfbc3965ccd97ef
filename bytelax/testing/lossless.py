"""`assert_lossless`, a test that certifies a method as lossless."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.compiling import own_jit, own_settings
from bytelax.decode import (
    Decoding,
    Empty,
    Method,
    Params,
    Sampling,
    Text,
    Tree,
    is_drafted,
    take_all,
)
from bytelax.decode.acceptance import declared
from bytelax.decode.sampling import one_hot
from bytelax.testing.chance import Chance
from bytelax.testing.exact_law import (
    batch_of,
    distance,
    farthest,
    law_and_kept,
    law_of,
    laws,
    next_byte,
    one_round,
    probabilities,
    started,
)

EXACT = 1e-6  # differences of probabilities below this are rounding errors
FAULTY = 1e-3  # a planted fault must change some probability by more than this
FEW = 2  # ids, likeliest values of each, and places that pad a window, in shorter enumerations
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
    reach: int = 64,
    temperature: float = 0.8,
    top_p: float = 0.9,
    top_k: int = 0,
) -> None:
    """Asserts that a method generates what its target alone would generate.

    What is tested:

    1. The joint distribution of the next `new_bytes` ids is that of the target to 1e-6, with every
       draft, acceptance decision and sampled byte integrated out. So is that of the next two ids,
       with `top_k` 2, in a batch of one row and a window wider by two, and after `reach` bytes
       that the method itself has written, when shorter caches have wrapped around.
    2. The bytes and log-probabilities of 2 `rows` rows are bitwise the same in any order of the
       batch and with anything in the padding.
    3. The target reads a window as it reads a prompt, wherever EOS lies among its kept or its
       refused ids.
    4. The same enumeration detects a planted fault: an acceptance rule that keeps every draft, or
       the first branch of every tree.

    A method that drafts and keeps none of its drafts is rejected, because its rule was never
    exercised. Plain decoding (`decode.Empty`) has no drafts, and passes without the fourth.

    The cost grows with the number of possible drafts, so keep supports small: use a target of 3 or
    4 byte values, or a real vocabulary with a small `top_k`. The drafter must take its random
    numbers from `DraftInput.uniforms`, and use them in `decode.draw` or `decode.sampling`.

    Args:
      method: the method to certify, with its drafter and acceptance rule.
      params: parameters of target and drafter.
      prompt: ids, BOS first; of a target with another vocabulary, ids of its own.
      new_bytes: number of ids to enumerate. It should be more than the window, so that a second
        round is tested; by default it is the draft length plus 2, but at most 5.
      rows: batch size of the compiled round.
      reach: number of bytes to write before the last enumeration; more than the longest attention
        window or ring of target and drafter. It is lowered to what the model's context holds.
      temperature: sampling temperature; 0 is greedy.
      top_p: as in `Sampling`.
      top_k: as in `Sampling`.

    Raises:
      AssertionError: the method is not lossless, or that was not tested; the message says what
        differs, and by how much.
      TypeError: it is not a `Method`.
      ValueError: the target may write too many texts to enumerate them, or `new_bytes` is none.
    """
    if not isinstance(method, Method):
        raise TypeError(f"what is certified is a decode.Method, not a {type(method).__name__}")
    law: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    few = law | {"top_k": min(top_k or FEW, FEW)}
    if new_bytes is None:
        new_bytes = min(method.drafter.draft_length + 2, 5)
    if new_bytes < 1:
        raise ValueError(f"new_bytes must be at least 1, got {new_bytes}")
    length = len(prompt) + new_bytes + reach
    length = min(length, method.target.max_bytes or length)
    reach = length - len(prompt) - new_bytes
    following = next_byte(method, params, rows=rows, prompt=len(prompt), length=length)
    chance = Chance(one_round(method, params), rows)
    how: dict[str, Any] = {"prompts": [list(prompt)], "length": length}
    begin = started(method, params, budget=new_bytes, rows=rows, **how, **law)
    kept = _assert_law(chance, begin, following, "")
    free = following
    if params.constraint is not None:  # which is about outputs, not about what a target reads
        unbound = params._replace(constraint=None)
        free = next_byte(method, unbound, rows=rows, prompt=len(prompt), length=length)
    _assert_reads_eos(method, params, begin, free)
    wide = _wider(method)
    alone = started(wide, params, budget=min(FEW, new_bytes), rows=1, **how, **few)
    where = f" in a batch of one row and a window of {wide.window}"
    _assert_law(Chance(one_round(wide, params), rows=1), alone, following, where)
    written = _assert_rows_apart(method, params, prompt, length, reach, 2 * rows, law)
    far = dataclasses.replace(
        written,
        limit=written.text.length + min(FEW, new_bytes),
        sampling=alone.sampling,
        ended=alone.ended,
        log_probs=alone.log_probs,
    )
    _assert_law(chance, far, following, f" after {reach} bytes")
    if isinstance(method.drafter, Empty):
        return
    assert kept > FAULTY, NOTHING_KEPT
    judge = method.drafter.judged_by or method.accept
    keeps_all = _KeepsBranch() if declared(judge, "trees") else take_all
    faulty = Chance(one_round(dataclasses.replace(method, accept=keeps_all), params), rows)
    seen = distance(law_and_kept(faulty, begin)[0], _own(following, begin))
    assert seen > FAULTY, (
        f"keeping every draft changes no probability by more than {seen:.2g}, so no refusal was "
        "tested: certify the rule with a drafter that guesses otherwise than the model"
    )


@dataclasses.dataclass(frozen=True)
class _KeepsBranch:
    """LOSSY: keeps the first child of every node of a tree, as if the model were sure of it."""

    trees = True

    def __call__(self, draft, log_probs, uniforms):
        nodes, there = np.arange(log_probs.shape[1])[:, None], is_drafted(draft)[:, None]
        child = (draft.parents[:, None] == nodes) & there
        first = jnp.take_along_axis(draft.ids, child.argmax(-1), axis=1)
        sure = jnp.where(child.any(-1)[..., None], one_hot(first, log_probs.shape[-1]), log_probs)
        return Tree(draft.ids.shape[1])(draft, sure, uniforms)


def _assert_law(chance, begin, following, where) -> float:
    """Asserts the target's law after a decoding of one row; returns how many drafts are kept."""
    own = _own(following, begin)  # first, as it is known sooner whether it can be enumerated
    found, kept = law_and_kept(chance, begin)
    off, text = farthest(found, own)
    assert off < EXACT, (
        f"the probability of the ids {text} is off by {off:.2g}{where}: the method is not lossless"
    )
    return kept


def _wider(method):
    """Returns the method with padded windows, or as it is if the caches of its target hold none."""
    try:
        return dataclasses.replace(method, window=method.window + FEW)
    except ValueError:
        return method


def _own(following, begin):
    """Returns the target's law of what follows a decoding of one row, up to its limit."""
    text = begin.text.ids[0, : begin.text.length[0]].tolist()
    return law_of(following, begin.sampling, text, int(begin.limit[0]) - len(text))


def _assert_reads_eos(method, params, begin, following):
    """Asserts that the target keeps, or forgets, an EOS in a window as it does any other id."""
    target, width = method.verifier, method.window
    prompt = begin.text.ids[0, : begin.text.length[0]].tolist()
    # The place of EOS, and the number of ids that are kept: to before it, with it, and all.
    cases = [(eos, count) for eos in range(1, width) for count in {eos, eos + 1, width}]
    known = method.vocabulary
    if not cases or known.eos is None:
        return
    rows, (places, counts) = len(cases), np.array(cases).T
    values = [x for x in prompt if known.first <= x < known.stop] or [known.first]
    windows = np.random.default_rng(0).choice(values, (2, rows, width)).astype(np.int32)
    windows[0, :, 0] = prompt[-1]
    windows[0, np.arange(rows), places] = known.eos

    sampling = jax.tree.map(lambda x: np.repeat(x, rows, axis=0), begin.sampling)

    def run(params, text, windows, counts, sampling):
        state = target.prefill(params.target, text)
        _, trial = target.extend(params.target, state, windows[0])
        logits, _ = target.extend(params.target, target.commit(trial, counts), windows[1])
        return laws(logits, sampling)

    run = own_jit(run)
    text = batch_of([prompt], begin.text.ids.shape[1], rows)
    found = probabilities(*run(params, text, windows, counts, sampling))
    texts = [
        [*prompt, *windows[0, row, 1:count], windows[1, row, 0]] for row, count in enumerate(counts)
    ]
    off = abs(found - following(texts, begin.sampling)).max(1)
    assert off.max() < EXACT, (
        f"after a window with an EOS a probability is off by {off.max():.2g}: the target must "
        "keep an EOS as any other id, and forget one that was refused, as after the ids "
        f"{[*map(int, texts[off.argmax()])]}"
    )


def _assert_rows_apart(method, params, prompt, length, reach, rows, law) -> Decoding:
    """Asserts bitwise equality with rows in another order, and with other ids in their padding.

    Returns the first row, after `reach` bytes that it has written.
    """
    lengths = len(prompt) - np.arange(rows) % len(prompt)
    budgets = reach - np.arange(rows) % reach
    padding = method.vocabulary.first
    ids = np.full((rows, length), padding, np.int32)
    ids[:, : len(prompt)] = prompt

    def run(params, ids, lengths, budgets, seeds):
        decoding = method.init(
            params, Text(ids, lengths), budget=budgets, seeds=seeds, log_probs=True,
            sampling=Sampling.of(rows, allow_eos=False, **law),
        )  # fmt: skip
        return method.decode(params, decoding)

    run = own_jit(run)

    def of(order, ids):
        decoding = run(params, ids[order], lengths[order], budgets[order], order.astype(np.uint32))
        return jax.tree.map(lambda x: np.asarray(x)[np.argsort(order)], decoding)

    def seen(decoding):
        there = np.arange(length) < decoding.text.length[:, None]
        return np.where(there, decoding.text.ids, -1), decoding.log_probs

    order = np.arange(rows)
    after = np.arange(length) >= lengths[:, None]
    others = np.where(after, padding + 1, ids)
    first = of(order, ids)
    for what, found in {"order": of(order[::-1], ids), "padding": of(order, others)}.items():
        pairs = zip(seen(first), seen(found), strict=True)
        differ = np.flatnonzero(np.any([(a != b).any(1) for a, b in pairs], axis=0))
        assert not len(differ), (
            f"another {what} of the rows changes their output, as of the ids "
            f"{first.text.ids[differ[0], : lengths[differ[0]]].tolist()}"
        )
    return jax.tree.map(lambda x: x[:1], first)
