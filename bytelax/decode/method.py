"""`Method`, a decoding method, and its loop: draft, verify, accept, commit."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels import dispatch
from jaxtyping import Array, Bool, Float, Int, UInt32

from bytelax.compiling import own_settings
from bytelax.decode import sampling as sampling_
from bytelax.decode import stopping, trees
from bytelax.decode.acceptance import (
    Acceptance,
    Emitted,
    Lossless,
    declared,
    greedy,
    lossless,
)
from bytelax.decode.constraint import Automaton
from bytelax.decode.contract import (
    check_carried,
    check_drafter,
    check_emitted,
    check_judge,
    check_proposed,
    check_rule,
    check_shape,
    check_target,
)
from bytelax.decode.draft import Draft
from bytelax.decode.drafter import Drafter, DraftInput, DraftState, Empty
from bytelax.decode.record import (
    Counts,
    Origins,
    count_round,
    no_counts,
    no_origins,
    origins_of,
)
from bytelax.decode.sampling import Sampling
from bytelax.decode.stopping import Stops
from bytelax.decode.target import Branching, State, Target, Text, Trial
from bytelax.models.configs import UNFILLED, Filled
from bytelax.models.pytree import pytree
from bytelax.vocab import ALL_BYTES, Vocabulary


class Params(NamedTuple):
    """The parameters of a method: those of the target and the drafter, and a constraint."""

    target: Any
    drafter: Any = ()
    constraint: Automaton | None = None


_SHORT = 16  # most numbers of a row that a loop on a GPU carries in one array with others


@pytree
class Decoding:
    """The state of a batch that is being decoded. Every leaf has a leading batch axis.

    Attributes:
      text: prompts and outputs so far.
      state: the target's state.
      draft_state: the drafter's state.
      sampling: sampling settings of each row.
      stops: stop strings of each row.
      prompt: length of each prompt in ids, including BOS.
      limit: text length at which a row's budget is used up.
      seeds: one seed per row; all random numbers of the row are derived from it.
      ended: why the row has ended, a code of `stopping`; RUNNING as long as it has not.
      log_probs: the target's log-probability of each id of the text, among all of its vocabulary
        and before temperature, in nats; 0 for the prompt. None if not requested.
      automaton: state of the constraint's automaton after the text. None without a constraint.
      origins: provenance of each id of the text. None if not requested.
      counts: counters of rounds, bytes and draft passes.
    """

    text: Text
    state: State
    draft_state: DraftState
    sampling: Sampling
    stops: Stops
    prompt: Int[Array, " B"]
    limit: Int[Array, " B"]
    seeds: UInt32[Array, " B"]
    ended: Int[Array, " B"]
    automaton: Int[Array, " B"] | None
    log_probs: Float[Array, "B L"] | None
    origins: Origins | None
    counts: Counts

    def repeated(self, times: int, seeds: UInt32[Array, " N"]) -> "Decoding":
        """Returns each row `times` times, one copy after another, with N seeds of their own.

        It continues prompts that were prefilled once in several ways. No array is shared with
        the decoding or the seeds, so that the rows may be donated.
        """
        which = jnp.repeat(jnp.arange(len(self.prompt)), times)
        rows = jax.tree.map(lambda x: x[which], self)
        return dataclasses.replace(rows, seeds=jnp.array(seeds, copy=True))


Until = Callable[[Decoding], Bool[Array, ""]]


@dataclasses.dataclass(frozen=True)
class Method:
    """A decoding method: a target model, a drafter, and an acceptance rule.

    A hashable value without arrays, to be used as a static argument of compiled programs. `init`,
    `append`, `round` and `decode` are pure functions, which can be called under `jax.jit`,
    `jax.lax.scan` and other transformations.

    Attributes:
      target: the model that verifies.
      drafter: proposes up to K bytes per round.
      accept: the acceptance rule; `lossless` preserves the target's distribution.
      window: W, number of bytes in each verified window, at least K + 1. Lossless methods with the
        same window and batch size write the same bytes, bit for bit. A wider window costs time.
        None means K + 1.

    Raises:
      ValueError: the window is too narrow for the drafts or too wide for the target's caches, the
        model lacks what the drafter needs, or `accept` is not a rule.
    """

    target: Target
    drafter: Drafter = Empty()
    accept: Acceptance | Lossless = lossless
    window: Filled[int] = UNFILLED

    def __post_init__(self):
        check_target(self.target)
        check_drafter(self.drafter)
        check_rule(self.accept)
        drafted = self.drafter.draft_length
        longest = self.target.max_bytes
        window = drafted + 1 if self.window is None else self.window
        whole = isinstance(window, int | np.integer)
        if not whole or window <= drafted or (longest is not None and window > longest):
            drafts = f": a round drafts {drafted} bytes" if drafted else ""
            most = "" if longest is None else longest
            raise ValueError(f"window must lie in {drafted + 1}..{most}, got {window!r}{drafts}")
        object.__setattr__(self, "window", window)
        _ = self.verifier  # raises early if the drafter does not fit the target

    @functools.cached_property
    def verifier(self) -> Target:
        """The target, adapted to the drafter and with caches for the window."""
        return self.drafter.fit(self.target).in_windows(self.window)

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that the target emits."""
        return self.target.vocabulary

    @property
    def lossless(self) -> bool:
        """Whether the output follows the target's distribution, as the rule `accept` declares."""
        return declared(self.accept, "lossless")

    @own_settings()
    def init(
        self,
        params: Params,
        text: Text,
        *,
        budget: int | Int[Array, "*B"],
        seeds: UInt32[Array, " B"] | None = None,
        sampling: Sampling | None = None,
        stops: Stops | None = None,
        log_probs: bool = False,
        origins: bool = False,
    ) -> Decoding:
        """Prefills the prompts and returns the initial state.

        Args:
          params: parameters of the target and of the drafter, and the constraint if there is one.
          text: the prompts, in buffers with room for `budget` more ids.
          budget: maximum number of ids to emit in each row; a row with 0 ends at once. No row goes
            on beyond the end of its buffer.
          seeds: one per row; None uses the row numbers.
          sampling: sampling settings; None is greedy.
          stops: stop strings; None means none.
          log_probs: whether to record the target's log-probability of every emitted id.
          origins: whether to record the provenance of every emitted id.

        Raises:
          ValueError: the acceptance rule is for greedy decoding and the sampling is not; or the
            buffers cannot hold `budget` ids after a prompt.
          TypeError: `params` are those of the target alone.
        """
        if not isinstance(params, Params):
            raise TypeError(f"params is decode.Params(model.params), not a {type(params).__name__}")
        chex.assert_rank(text.ids, 2)
        text = jax.tree.map(lambda x: x.astype(jnp.int32), text)
        batch, length = text.ids.shape
        if isinstance(budget, int) and budget >= length:
            raise ValueError(f"buffers of {length} ids have no room for {budget} after a prompt")
        chex.assert_shape(text.length, (batch,))
        sampling = Sampling.of(batch) if sampling is None else sampling
        sampling = dataclasses.replace(sampling, vocabulary=self.vocabulary)
        stops = (Stops.of([]) if stops is None else stops).for_rows(batch)
        seeds = jnp.arange(batch, dtype=jnp.uint32) if seeds is None else seeds
        budget = jnp.broadcast_to(jnp.asarray(budget, jnp.int32), (batch,))
        budget = jnp.minimum(budget, length - text.length)
        chex.assert_shape([seeds, sampling.temperature], (batch,))
        self._rule(sampling)  # raises early if the rule does not suit the sampling
        state = self.verifier.prefill(params.target, text)
        inputs = self._inputs(params, text, state, sampling, None)
        of_bytes = dataclasses.replace(self.vocabulary, eos=ALL_BYTES.eos) == ALL_BYTES
        if params.constraint is not None and not of_bytes:
            raise ValueError("a constraint is about bytes, and the target emits other ids")
        automaton, ended = _begin(params.constraint, budget)
        return Decoding(
            text=text,
            state=state,
            draft_state=self.drafter.init(inputs),
            sampling=sampling,
            stops=stops,
            prompt=jnp.array(text.length),  # a copy, for states that are donated
            limit=text.length + budget,
            seeds=seeds,
            ended=ended,
            automaton=automaton,
            log_probs=jnp.zeros((batch, length), jnp.float32) if log_probs else None,
            origins=no_origins(batch, length) if origins else None,
            counts=no_counts(batch, self.window - 1),
        )

    @own_settings()
    def append(
        self, params: Params, decoding: Decoding, more: Text, *, budget: int | Int[Array, "*B"]
    ) -> Decoding:
        """Appends bytes to texts, as the next turn of a conversation, to be continued again.

        The caches are kept: the target processes only what it has not seen. Decoding continues as
        if `init` had been given the whole text. An EOS that ended a row is taken back.
        Statistics begin again, and stop strings are looked for after the appended bytes.

        Args:
          params: as in `init`.
          decoding: texts, whose buffers have room for the bytes and for `budget` more ids.
          more: ids to append to each row, without BOS: `Text.of(turns, length=..., bos=False)`. A
            row may get none; one that EOS has ended then stays as it is.
          budget: as in `init`.

        Raises:
          TypeError: the target cannot go on from a state.
        """
        target: Any = self.verifier
        if not target.resumes:
            raise TypeError(f"{type(target).__name__}.prefill takes no state to go on from")
        batch = len(decoding.prompt)
        chex.assert_shape(more.length, (batch,))
        by_eos = decoding.ended == stopping.BY_EOS
        stays = by_eos & (more.length == 0)
        # An EOS that has ended a row is pending: no cache holds it.
        begin = decoding.text.length - (by_eos & ~stays)

        def put(known, new):
            return _append(known, begin, new, more.length)

        def forget(known):
            return put(known, jnp.zeros((*more.ids.shape, *known.shape[2:]), known.dtype))

        text = Text(put(decoding.text.ids, more.ids), begin + more.length)
        state = target.prefill(params.target, text, decoding.state)
        inputs = self._inputs(params, text, state, decoding.sampling, None)
        room = decoding.text.ids.shape[1] - text.length
        budget = jnp.where(stays, 0, jnp.minimum(budget, room))
        automaton, ended = _begin(params.constraint, budget)
        log_probs, origins = jax.tree.map(forget, (decoding.log_probs, decoding.origins))
        return dataclasses.replace(
            decoding,
            text=text,
            state=state,
            draft_state=self.drafter.resume(inputs, decoding.draft_state),
            prompt=jnp.array(text.length),
            limit=text.length + budget,
            ended=jnp.where(stays, decoding.ended, ended),
            automaton=automaton,
            log_probs=log_probs,
            origins=origins,
            counts=no_counts(batch, self.window - 1),
        )

    @own_settings()
    def round(self, params: Params, decoding: Decoding) -> Decoding:
        """Runs one draft-verify-commit round. Rows that have ended stand still."""
        return self.verify(params, decoding, *self.draft(params, decoding))

    @own_settings()
    def draft(self, params: Params, decoding: Decoding) -> tuple[Draft, DraftState]:
        """Runs the first half of a round: returns a draft, and the drafter's state after it."""
        text, inputs = decoding.text, self._round_inputs(params, decoding)
        with jax.named_scope("draft"):
            proposed = self.drafter.propose(inputs, decoding.draft_state)
        draft, draft_state = check_proposed(self.drafter, proposed, text.ids)
        decided = (draft.ids, draft.length, draft.parents)
        with jax.named_scope("drafted"):
            ids, length, parents = self.verifier.agreed(decided)
        return dataclasses.replace(draft, ids=ids, length=length, parents=parents), draft_state

    @own_settings()
    def verify(
        self, params: Params, decoding: Decoding, draft: Draft, draft_state: DraftState
    ) -> Decoding:
        """Runs the second half of a round: verifies a draft, and keeps what was accepted."""
        draft, running = draft.widened(self.window - 1), decoding.ended == stopping.RUNNING
        logits, trial = self.verifier.extend(
            params.target,
            decoding.state if draft.state is None else draft.state,
            jnp.concatenate([decoding.text.pending, draft.ids], axis=1),
            most=jnp.where(running, draft.length + 1, 0),
            **({} if draft.parents is None else {"parents": draft.parents}),
        )
        chex.assert_shape(logits, (len(running), self.window, None))
        draft = draft.written_out(logits.shape[-1])
        draft, allowed = self._allowed(params.constraint, decoding.automaton, draft, logits)
        emitted, lawful = self._judged(decoding, draft, allowed)
        if emitted.path is not None:
            draft, logits, trial, lawful = self._along(emitted.path, draft, logits, trial, lawful)
        lawful = jnp.cumprod(lawful, axis=1).sum(1)
        # A rule that emitted nothing would never end.
        count = jnp.clip(emitted.count, 1, self.window)
        kept, ended, automaton = self._kept(params, decoding, emitted.ids, count, lawful, running)
        counts = self._counted(params, decoding, draft, emitted, kept, lawful)
        inputs = self._round_inputs(params, decoding)
        draft_state = self.drafter.commit(inputs, draft_state, trial, kept)
        check_carried(self.drafter, decoding.draft_state, draft_state)
        return dataclasses.replace(
            _appended(decoding, draft, emitted, logits, kept),
            state=self.verifier.commit(trial, kept),
            draft_state=draft_state,
            ended=ended,
            automaton=automaton,
            counts=counts,
        )

    @own_settings()
    def decode(self, params: Params, decoding: Decoding, *, until: Until | None = None) -> Decoding:
        """Runs rounds in one `lax.while_loop` until every row has ended or `until` holds."""
        together, apart = _carried(decoding)

        def unfinished(decoding):
            running = (decoding.ended == stopping.RUNNING).any()
            return running if until is None else running & ~until(decoding)

        def body(carry):
            decoding = self.round(params, apart(carry[1]))
            return unfinished(decoding), together(decoding)

        begin = unfinished(decoding), together(decoding)
        return apart(jax.lax.while_loop(lambda carry: carry[0], body, begin)[1])

    def _along(
        self,
        path: Int[Array, "B W"],
        draft: Draft,
        logits: Float[Array, "B W V"],
        trial: Trial,
        lawful: Int[Array, "B W"],
    ) -> tuple[Draft, Float[Array, "B W V"], Trial, Int[Array, "B W"]]:
        """Returns the branch of a tree that was accepted, and what belongs to it, as a chain."""
        target = self.verifier
        assert isinstance(target, Branching)
        logits = jnp.take_along_axis(logits, path[..., None], axis=1)
        lawful = jnp.take_along_axis(lawful, path, axis=1)
        return trees.along(draft, path), logits, target.along(trial, path), lawful

    def _kept(
        self,
        params: Params,
        decoding: Decoding,
        ids: Int[Array, "B W"],
        count: Int[Array, " B"],
        lawful: Int[Array, " B"],
        running: Bool[Array, " B"],
    ) -> tuple[Int[Array, " B"], Int[Array, " B"], Int[Array, " B"] | None]:
        """Cuts what a rule emitted where a row ends.

        Returns the number of ids kept, why rows have ended, and the states of the automaton.
        """
        sound = jnp.minimum(count, lawful)
        states, complete = _walked(params.constraint, decoding.automaton, ids)
        kept, ended = self._trim(decoding, ids, jnp.where(running, sound, 0), complete)
        broken = (ended == stopping.RUNNING) & (sound < count)
        ended = jnp.where(broken, stopping.NOT_FINITE, ended)
        ended = jnp.where(running, ended, decoding.ended)
        return kept, ended, None if states is None else _at(states, kept)

    def _allowed(
        self,
        constraint: Automaton | None,
        before: Int[Array, " B"] | None,
        draft: Draft,
        logits: Float[Array, "B W V"],
    ) -> tuple[Draft, Float[Array, "B W V"]]:
        """Returns a draft that a rule may keep, and the logits of what the constraint allows."""
        if constraint is None or before is None:
            return draft, logits
        states = constraint.walk(before, draft.ids, draft.parents)
        if not self.lossless:  # such a rule may keep what the model may not write
            obeys = jnp.cumprod(states[:, 1:] >= 0, axis=1).sum(1)
            draft = dataclasses.replace(draft, length=jnp.minimum(draft.length, obeys))
        return draft, jnp.where(constraint.allowed(states, logits.shape[-1]), logits, -jnp.inf)

    def _judged(
        self, decoding: Decoding, draft: Draft, logits: Float[Array, "B W V"]
    ) -> tuple[Emitted, Int[Array, "B W"]]:
        """Returns what the rule emits, and 1 for each row of logits that forms a distribution."""
        sampling, (batch, width, size) = decoding.sampling, logits.shape
        name = f"{type(self.drafter).__name__}.propose, Draft.log_probs"
        check_shape(name, draft.log_probs, (batch, width - 1, size))
        judging = (sampling_.ACCEPT, sampling_.RESIDUAL)
        position = decoding.text.length
        keys = (sampling_.row_keys(decoding.seeds, position, purpose) for purpose in judging)
        uniforms = jnp.stack([sampling_.row_uniforms(key, width) for key in keys], axis=1)
        lawful = sampling_.has_law(logits, sampling)
        accept = self._rule(sampling)
        if accept is greedy:  # it reads only which id is likeliest
            laws = sampling_.without_banned(logits, sampling)
        else:
            # What is emitted before such logits must not depend on them: a rule sees others.
            laws = sampling_.process_logits(jnp.where(lawful[..., None], logits, 0), sampling)
        check_judge(accept, self.drafter, tree=draft.parents is not None)
        emitted = accept(draft, laws, uniforms)
        with jax.named_scope("emitted"):
            emitted = check_emitted(self.accept, emitted, (batch, width))
            return self.verifier.agreed((emitted, lawful.astype(jnp.int32)))

    def _trim(self, decoding, ids, count, complete):
        """Returns how many of the ids that follow a text belong to it, and why it ends there."""
        return stopping.trim(
            decoding.text,
            ids,
            count,
            prompt=decoding.prompt,
            limit=decoding.limit,
            stops=decoding.stops,
            complete=complete,
            eos=self.vocabulary.eos,
        )

    def _counted(
        self,
        params: Params,
        decoding: Decoding,
        draft: Draft,
        emitted: Emitted,
        kept: Int[Array, " B"],
        lawful: Int[Array, " B"],
    ) -> Counts:
        """Returns the counters with this round, whose draft is cut where the text would end.

        Nothing after an end of the text could be kept, so it counts as neither kept nor refused.
        Branches of a tree that were not followed have no known end.
        """
        offered = draft.length
        if draft.ids.shape[1]:
            known = draft.length if emitted.path is None else emitted.drafted
            _, complete = _walked(params.constraint, decoding.automaton, draft.ids)
            within, ended = self._trim(decoding, draft.ids, known, complete)
            room = decoding.limit - decoding.text.length
            whole = ended == stopping.RUNNING
            offered = jnp.where(whole, jnp.minimum(draft.length, room), within)
        cut = dataclasses.replace(draft, length=jnp.minimum(offered, lawful))
        return count_round(decoding.counts, cut, kept, emitted.drafted)

    def _round_inputs(self, params, decoding):
        text, state, sampling = decoding.text, decoding.state, decoding.sampling
        keys = sampling_.row_keys(decoding.seeds, text.length, sampling_.DRAFT)
        return self._inputs(params, text, state, sampling, keys)

    def _inputs(self, params, text, state, sampling, key):
        return DraftInput(params.drafter, self.verifier, params.target, state, text, sampling, key)

    def _rule(self, sampling: Sampling) -> Acceptance:
        rule = self.accept
        if isinstance(rule, Lossless):
            rule = rule.rule(sampling, self.drafter)
        if rule is greedy and not sampling.greedy:
            raise ValueError("accept=greedy takes the likeliest bytes, but the sampling draws them")
        return rule


def _carried(decoding):
    """Returns a function from a decoding to the carry of a loop, and its inverse.

    On a GPU the short arrays of a row are packed into one; separately, each would cost an operation
    per round. On a TPU packing costs more operations than it saves.
    """
    leaves, tree = jax.tree.flatten(decoding)
    rows = len(decoding.ended)
    short = [
        dispatch.platform() == "gpu"
        and x.dtype.itemsize == 4
        and x.shape[:1] == (rows,)
        and math.prod(x.shape[1:]) <= _SHORT
        for x in leaves
    ]
    if not any(short):
        return lambda decoding: decoding, lambda carry: carry
    known = [*itertools.compress(leaves, short)]
    ends = np.cumsum([math.prod(x.shape[1:]) for x in known])[:-1]

    def together(decoding):
        leaves = jax.tree.leaves(decoding)
        others = itertools.compress(leaves, [not each for each in short])
        bits = [_bits(x, jnp.int32) for x in itertools.compress(leaves, short)]
        return [*others], jnp.concatenate([x.reshape(rows, -1) for x in bits], axis=1)

    def apart(carry):
        others, parts = iter(carry[0]), jnp.split(carry[1], ends, axis=1)
        found = (
            _bits(part.reshape(x.shape), x.dtype) for x, part in zip(known, parts, strict=True)
        )
        return jax.tree.unflatten(tree, [next(found if each else others) for each in short])

    return together, apart


_bits = jax.lax.bitcast_convert_type


def _begin(constraint, budget):
    """Returns the automaton's states before the output, and why rows without output end."""
    ended = jnp.where(budget > 0, stopping.RUNNING, stopping.BY_LENGTH)
    if constraint is None:
        return None, ended
    state = jnp.broadcast_to(constraint.start, budget.shape)
    complete = constraint.complete[state] & (ended == stopping.RUNNING)
    return state, jnp.where(complete, stopping.BY_CONSTRAINT, ended)


def _walked(constraint, before, ids):
    """Returns the automaton's states before and after each id, and where nothing may follow."""
    if constraint is None:
        return None, None
    states = constraint.walk(before, ids)
    return states, constraint.complete[states[:, 1:]] & (states[:, 1:] >= 0)


def _appended(decoding, draft, emitted, logits, kept):
    """Returns the decoding with the kept ids in its text, and what is recorded for each of them."""
    start = decoding.text.length
    new: dict[str, Any] = {}
    known = dataclasses.replace(decoding.sampling, allow_eos=True)
    logits = sampling_.without_banned(logits, known)  # models may have no row for other ids
    if decoding.log_probs is not None:
        scores = jnp.take_along_axis(jax.nn.log_softmax(logits), emitted.ids[..., None], -1)
        new["log_probs"] = scores[..., 0]
    if decoding.origins is not None:
        new["origins"] = origins_of(draft, emitted)
    known = {name: vars(decoding)[name] for name in new}
    kinds = jax.tree.map(lambda known, new: _append(known, start, new, kept), known, new)
    text = Text(_append(decoding.text.ids, start, emitted.ids, kept), start + kept)
    return dataclasses.replace(decoding, text=text, **kinds)


def _at(values, index):
    """Returns values[b, index[b]] for each row b."""
    return jnp.take_along_axis(values, index[:, None], axis=1)[:, 0]


def _append(buffer, length, values, count):
    """Writes the first `count` values of each row from index `length` on, and drops the rest."""
    if dispatch.platform() == "gpu":  # where a scatter is three operations
        place = jnp.arange(buffer.shape[1]) - length[:, None]
        there = (place >= 0) & (place < count[:, None])
        place, there = (x.reshape(*x.shape, *(1,) * (buffer.ndim - 2)) for x in (place, there))
        new = jnp.take_along_axis(values, jnp.clip(place, 0, values.shape[1] - 1), axis=1)
        return jnp.where(there, new.astype(buffer.dtype), buffer)
    place = jnp.arange(values.shape[1])
    at = jnp.where(place < count[:, None], length[:, None] + place, buffer.shape[1])
    row = jnp.arange(buffer.shape[0])[:, None]
    return buffer.at[row, at].set(values.astype(buffer.dtype), mode="drop")
