"""The smallest target and drafter: the next byte depends on the last two ids, by a table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bytelax import vocab
from bytelax.decode import Draft, Drafter, Sampling, process_logits, sampling
from bytelax.decode.target import Branching


def table(byte_values: int, seed: int, scale: float = 1.0) -> Float[Array, "V V V"]:
    """Returns random logits of the next id after each pair of ids: the specials and some bytes."""
    size = vocab.OFFSET + byte_values
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, scale, (size, size, size))
    logits[..., vocab.EOS] -= 2  # else most texts end soon
    return jnp.asarray(logits, jnp.float32)


@dataclasses.dataclass(frozen=True)
class TableTarget(Branching):
    """A `Target` of chains and trees, whose parameters are a table; its state is the last id."""

    model_kind = "a table"
    resumes = True

    def prefill(self, params, text, state=None):
        before = jnp.maximum(text.length - 2, 0)[:, None]
        last = jnp.take_along_axis(text.ids, before, axis=1)[:, 0]
        return {"last": jnp.where(text.length > 1, last, vocab.BOE)}

    def extend(self, params, state, window, *, most=None, parents=None):
        ids = jnp.concatenate([state["last"][:, None], window], axis=1)
        before = ids[:, :-1]
        if parents is not None:
            above = jnp.pad(parents + 1, ((0, 0), (1, 0)))
            before = jnp.take_along_axis(ids, above, axis=1)
        return params[before, window], ids

    def along(self, trial, path):
        return jnp.take_along_axis(trial, jnp.pad(path + 1, ((0, 0), (1, 0))), axis=1)

    def commit(self, trial, count):
        return {"last": jnp.take_along_axis(trial, count[:, None], axis=1)[:, 0]}


@dataclasses.dataclass(frozen=True)
class TableDrafter(Drafter):
    """A `Drafter` with a table of its own, which proposes one byte after the other.

    Attributes:
      draft_length: K.
      temperature: of the drafts; 0 proposes the likeliest bytes, without chance.
      top_p: of the drafts.
      ragged: a draft ends early at some ids, before the ones that it did not draft are known.
    """

    draft_length: int
    temperature: float = 1.0
    top_p: float = 1.0
    ragged: bool = False

    def propose(self, inputs, draft_state):
        text = inputs.text
        batch = text.ids.shape[0]
        at = jnp.maximum(text.length[:, None] - jnp.array([2, 1]), 0)
        before, last = jnp.take_along_axis(text.ids, at, axis=1).T

        def step(carry, now):
            before, last, going = carry
            place, uniform = now
            if self.ragged:
                going &= (before + last + place) % 3 != 1
            logits = inputs.params[before, last][:, None]
            following = sampling.sample(self.drawn(logits)[:, 0], uniform)
            return (last, following, going), (following, self.declared(logits)[:, 0], going)

        uniforms = inputs.uniforms(self.draft_length)
        begin = before, last, jnp.ones(batch, bool)
        _, out = jax.lax.scan(step, begin, (jnp.arange(self.draft_length), uniforms.T))
        ids, log_probs, going = (jnp.moveaxis(x, 0, 1) for x in out)
        return Draft(ids, going.sum(1), log_probs), draft_state

    def drawn(self, logits: Float[Array, "B W V"]) -> Float[Array, "B W V"]:
        """Returns the distribution that is drawn from."""
        law = Sampling.of(len(logits), temperature=self.temperature, top_p=self.top_p)
        return process_logits(logits, law)

    def declared(self, logits: Float[Array, "B W V"]) -> Float[Array, "B W V"]:
        """Returns the distribution that the draft reports; a test may lie here."""
        return self.drawn(logits)
