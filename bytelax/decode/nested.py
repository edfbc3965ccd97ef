"""Nested speculation: the local decoder of a BLT drafts, and a cheaper drafter drafts for it."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from bytelax.decode import sampling
from bytelax.decode.draft import Draft
from bytelax.decode.drafters import Drafter, check_latent, fitted
from bytelax.decode.drafters.past_boundary import OfDecoder
from bytelax.decode.method import Method, Params
from bytelax.decode.target import Text
from bytelax.decode.targets.blt import BLTTarget
from bytelax.decode.targets.local_decoder import LocalDecoderTarget


@dataclasses.dataclass(frozen=True)
class Nested(OfDecoder):
    """BLT-S whose own drafting is speculative.

    The local decoder on frozen latents is a target of its own. A second `Method` decodes with it:
    `drafter` proposes, and the decoder verifies several bytes in a pass. What it keeps follows the
    decoder's own distribution, and is the draft that the whole BLT verifies.

    Attributes:
      draft_length: K, number of bytes drafted for the BLT.
      drafter: drafts for the local decoder. Its state is the one after its first proposal of a
        round, which the BLT's windows bring up to date.
      latent: as in `PastBoundary`, without "refresh".
    """

    draft_length: int
    drafter: Drafter
    latent: Literal["reuse", "predicted"] = "reuse"

    def __post_init__(self):
        check_latent(self, "reuse", "predicted")

    def fit(self, target):
        target = super().fit(target)
        _ = self._method(target).verifier  # raises if the local decoder lacks what it needs
        return fitted(self.drafter, target)

    def init(self, inputs):
        return self.drafter.init(inputs)

    def propose(self, inputs, draft_state):
        method, text = self._method(inputs.target), inputs.text
        ids = jnp.pad(text.ids, ((0, 0), (0, self.draft_length)))
        params = Params(inputs.target_params, inputs.params)
        target = method.verifier
        assert isinstance(target, LocalDecoderTarget)
        decoding = method.init(
            params,
            Text(ids, text.length),
            budget=self.draft_length,
            seeds=jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(inputs.key),
            sampling=inputs.sampling,
            state=target.begin(params.target, inputs.state, text),
            draft_state=draft_state,
        )
        if jax.tree.leaves(draft_state):
            # The state behind the text itself stays true; later ones hold what the BLT may refuse.
            draft, draft_state = method.draft(params, decoding)
            decoding = method.verify(params, decoding, draft, draft_state)
        decoding = method.decode(params, decoding)
        place = text.length[:, None] + jnp.arange(self.draft_length)
        ids = jnp.take_along_axis(decoding.text.ids, place, axis=1, mode="clip")
        draft = Draft(
            ids=ids,
            length=decoding.text.length - text.length,
            log_probs=sampling.process_logits(decoding.state.logits, inputs.sampling),
            **target.handed_back(inputs.state, decoding.state, decoding.counts.draft_passes),
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return self.drafter.commit(inputs, draft_state, trial, count)

    def _method(self, target: BLTTarget) -> Method:
        return Method(self.decoder(target), self.drafter)
