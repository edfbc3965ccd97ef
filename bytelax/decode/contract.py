"""Checks the user's own targets, drafters and rules, with errors of one sentence."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from bytelax.decode.acceptance import Emitted, Lossless, declared
from bytelax.decode.draft import Draft
from bytelax.decode.drafter import Drafter
from bytelax.decode.target import Target


def check_target(target: Any) -> None:
    """Raises TypeError if this is not a target."""
    if not isinstance(target, Target):
        name = type(target).__name__
        raise TypeError(
            f"{name} is not a subclass of decode.Target: for a model, take its target()"
        )


def check_drafter(drafter: Any) -> None:
    """Raises TypeError if this is not a drafter, or not hashable."""
    name = type(drafter).__name__
    if not isinstance(drafter, Drafter):
        raise TypeError(f"{name} is not a subclass of decode.Drafter")
    try:
        hash(drafter)
    except TypeError:
        raise TypeError(
            f"the drafter {name} is not hashable: make it a frozen dataclass without arrays, and "
            "pass arrays as draft_params"
        ) from None


def check_rule(rule: Any) -> None:
    """Raises ValueError for anything but an acceptance rule, such as the name of one."""
    if not (callable(rule) or isinstance(rule, Lossless)):
        raise ValueError(
            f"accept is a function that judges drafts, such as decode.typical, got {rule!r}"
        )


def check_proposed(drafter: Drafter, proposed: Any, ids: Int[Array, "B L"]) -> tuple[Draft, Any]:
    """Returns what `propose` returned, a draft and a state.

    Raises:
      TypeError: it is something else, the ids or the length are not integers, or the
        log-probabilities are not float32: narrower ones are not the distribution that was sampled.
      ValueError: the draft has another shape than the rows of `ids` times `draft_length`.
    """
    name = f"{type(drafter).__name__}.propose"
    pair = isinstance(proposed, tuple) and len(proposed) == 2
    if not pair or not isinstance(proposed[0], Draft):
        raise TypeError(f"{name} must return a Draft and the drafter's state, see draft_of")
    draft, state = proposed
    rows, places = ids.shape[0], drafter.draft_length
    ids_and_length = ("ids", draft.ids, (rows, places)), ("length", draft.length, (rows,))
    for part, values, shape in ids_and_length:
        check_shape(f"{name}, Draft.{part}", values, shape)
        if not jnp.issubdtype(values.dtype, jnp.integer):
            raise TypeError(f"{name}, Draft.{part}: must be integers, not {values.dtype}")
    if draft.log_probs is not None and draft.log_probs.dtype != jnp.float32:
        raise TypeError(
            f"{name}, Draft.log_probs: must be float32, not {draft.log_probs.dtype}: "
            "process_logits gives them so"
        )
    return draft, state


def check_shape(name: str, values: Any, shape: tuple[int, ...]) -> None:
    """Raises ValueError if an array that is called `name` has another shape."""
    if jnp.shape(values) != shape:
        raise ValueError(f"{name}: must have shape {shape}, not {jnp.shape(values)}")


def check_judge(rule: Any, drafter: Drafter, *, tree: bool) -> None:
    """Raises ValueError if a rule cannot judge what this drafter proposed, a `tree` or a chain."""
    whose = type(drafter).__name__
    if tree != declared(rule, "trees"):
        other, kinds = ("Tree", ("chains", "trees")) if tree else ("lossless", ("trees", "chains"))
        raise ValueError(
            f"the rule {_name(rule)} judges {kinds[0]}, but {whose} proposes {kinds[1]}: "
            f"use accept={other}"
        )
    if not declared(rule, "judges")(drafter):
        raise ValueError(
            f"the rule {rule} cannot judge the drafts of {whose}: accept=lossless takes its own"
        )


def check_carried(drafter: Drafter, before: Any, after: Any) -> None:
    """Raises TypeError if a round changes the shapes or dtypes of the drafter's state."""
    made, left = (dict(_forms(state)) for state in (before, after))
    for place in made | left:
        old, new = made.get(place, "missing"), left.get(place, "missing")
        if old != new:
            name = type(drafter).__name__
            raise TypeError(f"{name}: state{place} is {old} from init, and {new} after a round")


def _forms(state):
    """Yields the place of each leaf, with its dtype and shape."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        leaf = jnp.asarray(leaf)
        yield jax.tree_util.keystr(path), f"{leaf.dtype}{list(leaf.shape)}"


def check_emitted(rule: Any, emitted: Any, window: tuple[int, int]) -> Emitted:
    """Returns what an acceptance rule returned for windows of this shape, [B, W].

    Raises:
      TypeError: it is not an `Emitted`.
      ValueError: it has another shape than the window.
    """
    name = _name(rule)
    if not isinstance(emitted, Emitted):
        raise TypeError(f"the acceptance rule {name} must return an Emitted, as decode.follow does")
    check_shape(f"{name}, Emitted.ids", emitted.ids, window)
    check_shape(f"{name}, Emitted.count", emitted.count, window[:1])
    check_shape(f"{name}, Emitted.drafted", emitted.drafted, window[:1])
    return emitted


def _name(rule):
    return getattr(rule, "__name__", type(rule).__name__)  # a function has a name of its own
