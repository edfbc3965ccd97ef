"""The one loop: draft, verify, accept, commit. It knows no model and no method."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from bytelax.decode import origins as origin_codes
from bytelax.decode import sampling, stats, stopping, trees
from bytelax.decode.acceptance import Acceptance
from bytelax.decode.drafters.base import Drafter, DraftState
from bytelax.decode.origins import Origins
from bytelax.decode.sampling import Sampling
from bytelax.decode.stats import Counts
from bytelax.decode.stopping import Stops
from bytelax.decode.target import State, Target, Text, Waiting
from bytelax.pytree import pytree


@pytree
class Decoding:
    """A batch on its way. Every leaf has the batch as its leading axis.

    Attributes:
      text: prompts and outputs so far.
      state: the target's.
      draft_state: the drafter's.
      prompt: length of each prompt.
      limit: text length at which a row's budget is used up.
      seeds: one a request; all of a row's chance comes from it.
      ended: a code of `stopping`; RUNNING while the row goes on.
      log_probs: the target's log-probability of each id of the text under the untouched model
        (no temperature, no bans); 0 for the prompt. None when not asked for.
      origins: where each id of the text came from. None when not asked for.
      counts: what happened.
    """

    text: Text
    state: State
    draft_state: DraftState
    prompt: Int[Array, " B"]
    limit: Int[Array, " B"]
    seeds: UInt32[Array, " B"]
    ended: Int[Array, " B"]
    log_probs: Float[Array, "B L"] | None
    origins: Origins | None
    counts: Counts


Until = Callable[[Decoding], jax.Array]


def start(
    params: dict,
    text: Text,
    *,
    target: Target,
    drafter: Drafter,
    draft_length: int,
    budget: Int[Array, " B"],
    seeds: UInt32[Array, " B"],
    log_probs: bool = False,
    origins: bool = False,
) -> Decoding:
    """Takes in the prompts.

    Args:
      params: `{"target": ..., "drafter": ...}`.
      text: the prompts, in a buffer with room for `budget` ids more.
      target: the model.
      drafter: the method's drafter.
      draft_length: K, the width of its drafts.
      budget: most ids to emit, one number a row; 0 ends the row at once.
      seeds: one a row.
      log_probs: keep the target's log-probability of every emitted id.
      origins: keep where every emitted id came from.
    """
    state = target.prefill(params["target"], text)
    return Decoding(
        text=text,
        state=state,
        draft_state=drafter.init(params, text, state),
        prompt=text.length,
        limit=text.length + budget,
        seeds=seeds,
        ended=jnp.where(budget > 0, stopping.RUNNING, stopping.BY_LENGTH),
        log_probs=jnp.zeros(text.ids.shape, jnp.float32) if log_probs else None,
        origins=origin_codes.no_origins(*text.ids.shape) if origins else None,
        counts=stats.no_counts(text.ids.shape[0], draft_length),
    )


def round(
    params: dict,
    decoding: Decoding,
    *,
    target: Target,
    drafter: Drafter,
    accept: Acceptance,
    law: Sampling,
    stops: Stops,
) -> Decoding:
    """One draft-verify-commit. Rows that have ended, or that wait for others, stand still."""
    text = decoding.text
    draft_keys, *judge_keys = (
        sampling.row_keys(decoding.seeds, text.length, purpose)
        for purpose in (sampling.DRAFT, sampling.ACCEPT, sampling.RESIDUAL)
    )
    with jax.named_scope("draft"):
        draft, draft_state = drafter.propose(
            params | {"law": law}, decoding.draft_state, text, decoding.state, draft_keys
        )
    window = jnp.concatenate([text.pending, draft.ids], axis=1)
    running = decoding.ended == stopping.RUNNING
    logits, trial = target.extend(
        params["target"], decoding.state, window, running=running, **_of_window(draft)
    )
    if isinstance(target, Waiting):
        running &= ~target.waits(trial)
    uniforms = jnp.stack(
        [sampling.row_uniforms(keys, window.shape[1]) for keys in judge_keys], axis=1
    )
    emitted = accept(draft, sampling.process_logits(logits, law), uniforms)
    if emitted.path is not None:
        trial, draft = target.along(trial, emitted.path), trees.along(draft, emitted.path)
        logits = jnp.take_along_axis(logits, emitted.path[..., None], axis=1)
    kept, ended = stopping.trim(
        text,
        emitted.ids,
        jnp.where(running, emitted.count, 0),
        prompt=decoding.prompt,
        limit=decoding.limit,
        stops=stops,
    )
    log_probs = decoding.log_probs
    if log_probs is not None:
        scores = jnp.take_along_axis(jax.nn.log_softmax(logits), emitted.ids[..., None], axis=-1)
        log_probs = _append(log_probs, text.length, scores[..., 0], kept)
    origins = decoding.origins
    if origins is not None:
        origins = jax.tree.map(
            lambda known, new: _append(known, text.length, new, kept),
            origins,
            origin_codes.of_round(draft, emitted),
        )
    return dataclasses.replace(
        decoding,
        text=Text(_append(text.ids, text.length, emitted.ids, kept), text.length + kept),
        state=target.commit(trial, kept),
        draft_state=drafter.commit(params, draft_state, trial, kept),
        ended=jnp.where(running, ended, decoding.ended),
        log_probs=log_probs,
        origins=origins,
        counts=stats.count_round(decoding.counts, draft, kept, emitted.drafted),
    )


def decode(
    params: dict,
    decoding: Decoding,
    *,
    target: Target,
    drafter: Drafter,
    accept: Acceptance,
    law: Sampling,
    stops: Stops,
    until: Until | None = None,
) -> Decoding:
    """Rounds under one `lax.while_loop`, until every row has ended or `until` says so."""

    def unfinished(decoding):
        running = (decoding.ended == stopping.RUNNING).any()
        return running if until is None else running & ~until(decoding)

    def body(decoding):
        return round(
            params,
            decoding,
            target=target,
            drafter=drafter,
            accept=accept,
            law=law,
            stops=stops,
        )

    return jax.lax.while_loop(unfinished, body, decoding)


def _of_window(draft):
    """What `extend` is told of a window beyond its ids; most targets know nothing of it."""
    options = {"parents": draft.parents, "computed": draft.computed}
    return {name: value for name, value in options.items() if value is not None}


def _append(buffer, length, values, count):
    """Writes the first `count` values of each row behind `length`; the rest go nowhere."""
    place = jnp.arange(values.shape[1])
    at = jnp.where(place < count[:, None], length[:, None] + place, buffer.shape[1])
    row = jnp.arange(buffer.shape[0])[:, None]
    return buffer.at[row, at].set(values.astype(buffer.dtype), mode="drop")
