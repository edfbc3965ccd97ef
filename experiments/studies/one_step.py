"""What a denoiser that knew the law of each byte ahead would keep, beside the trained one.

A denoiser that fills a block in one pass predicts its bytes apart from one another. If its loss, a
cross-entropy, were fitted perfectly to text that the model itself writes, it would predict the
model's own law of each byte, with the bytes between summed out. "Exact" drafts from these laws, as
means over continuations that the model samples. Other losses, and a table that links the bytes of
a block, may keep more. "Trained" is `blt-dv`, in one step. "By place": share of the drafts that are
kept up to a place. Acceptance "without loops" leaves out continuations that loop.

    python -m experiments.studies.one_step --data DIR
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from bytelax.decode import sampling
from bytelax.decode.draft import Draft, draw
from bytelax.decode.drafter import Drafter, DraftInput
from bytelax.decode.method import Method
from bytelax.decode.sampling import Sampling
from bytelax.measure.timing import Contestant
from experiments import evidence, study
from experiments.study import Column

SAMPLES, SIZE = 64, 8  # continuations of a text, and bytes of a block
AT_ONCE = 4  # prompts at a time, each with SAMPLES rows
MODELS = ("tiny-d",)
COLUMNS = [
    Column("model", "model"),
    Column("denoiser", "denoiser"),
    Column("T", "temperature", "g"),
    Column("bytes per round", "bytes_per_round", ".2f"),
    Column("loops", "loops"),
    Column("acceptance", "acceptance", ".1%"),
    Column("without loops", "acceptance_without_loops", ".1%"),
    Column("by place", "acceptance_by_position", ".0%"),
]


@dataclasses.dataclass(frozen=True)
class ExactDenoiser(Drafter):
    """Drafts each byte from the target's own law of it, with the block's earlier bytes summed out.

    For temperatures 0 and 1.

    Attributes:
      draft_length: number of bytes in a block.
      samples: continuations over which a law is a mean.
    """

    draft_length: int
    samples: int

    def propose(self, inputs, draft_state):
        uniforms = inputs.uniforms((self.samples + 1) * self.draft_length)
        own, uniforms = jnp.split(uniforms, [self.draft_length], axis=1)
        logits = jnp.log(laws_ahead(inputs, uniforms.reshape(-1, self.draft_length)))
        drawn = draw(logits, inputs.sampling, own)
        length = jnp.full_like(inputs.text.length, self.draft_length)
        return Draft(drawn.ids, length, drawn.log_probs), draft_state


def laws_ahead(inputs: DraftInput, uniforms: Float[Array, "R K"]) -> Float[Array, "B K V"]:
    """The target's law of each of the next K bytes at temperature 1, the others summed over.

    Args:
      inputs: of a drafter; a batch of B texts.
      uniforms: K random numbers for each of the R = B S continuations, S of a text, text by text.
    """
    batch, rows = len(inputs.text.length), len(uniforms)

    def repeated(x: Shaped[Array, "B ..."]) -> Shaped[Array, "R ..."]:
        return jnp.repeat(x, rows // batch, axis=0)

    how = Sampling.of(rows, temperature=1.0, allow_eos=inputs.sampling.allow_eos)
    how = dataclasses.replace(how, vocabulary=inputs.sampling.vocabulary)

    def step(carry, uniform):
        state, pending = carry
        logits, trial = inputs.target.extend(inputs.target_params, state, pending)
        log_probs = sampling.process_logits(logits, how)
        ids = sampling.sample(log_probs, uniform[:, None])
        state = inputs.target.commit(trial, jnp.ones(rows, jnp.int32))
        return (state, ids), jnp.exp(log_probs).reshape(batch, rows // batch, -1).mean(1)

    begin = jax.tree.map(repeated, (inputs.state, inputs.text.pending))
    _, laws = jax.lax.scan(step, begin, uniforms.T)
    return laws.swapaxes(0, 1)


def main():
    options = evidence.parser(__doc__, new=96, timed=False)
    options.add_argument("--samples", type=int, default=SAMPLES, help="continuations of a text")
    options = evidence.parsed(options)
    if options.smoke:
        options.samples = 2
    prompts = [text for _, text in evidence.prompts(options)]

    def measure(setting):
        model = evidence.loaded(setting["model"], dtype="float32")
        own = {
            "trained": Contestant("blt-dv", {"block_size": SIZE, "unmask": "one-step"}),
            "exact": Contestant(Method(model.target(), ExactDenoiser(SIZE, options.samples)), {}),
        }  # fmt: skip
        return evidence.figures(evidence.decoded(
            model, prompts, own[setting["denoiser"]], batch=AT_ONCE,
            new=options.new, temperature=setting["temperature"],
        ))  # fmt: skip

    settings = [
        {"model": model, "denoiser": denoiser, "temperature": temperature}
        for model in MODELS
        for temperature in evidence.TEMPERATURES
        for denoiser in ("trained", "exact")
    ]
    study.run(
        "one_step", options, settings[:2] if options.smoke else settings, measure, timed=False,
        conditions=evidence.conditions(options, samples=options.samples, block_size=SIZE),
    )  # fmt: skip


if __name__ == "__main__":
    main()
