"""What drafts across patch boundaries keep, by the latents that the drafting decoder reads.

`blt-s` on `tiny`: "stale", the latent of the latest closed patch, which is never renewed;
"predicted" by the head of latents; and two controls, one mean latent, and latents predicted in
another text. "Patches per global pass" leaves out loops.

    python -m experiments.studies.latents --data DIR
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from bytelax import decode, vocab
from bytelax.measure.timing import Contestant
from bytelax.systems import BltSDrafter
from experiments import evidence, study
from experiments.harness import loops
from experiments.study import Column

STALE, PREDICTED, MEAN, OTHER = "stale", "predicted", "mean", "predicted in another text"
COLUMNS = [
    Column("latents", "latents"),
    Column("bytes drafted", "options.draft_length"),
    Column("T", "temperature", "g"),
    *evidence.COUNTED[:4],
    Column("weights read, beside plain", "weights_read", ".2f"),
    Column("patches per global pass", "patches_per_global_pass", ".2f"),
    *evidence.TIMED_COLUMNS[:2],
]


@dataclasses.dataclass(frozen=True)
class MeanLatent(BltSDrafter):
    """Takes one vector, the drafter's parameters, for every patch."""

    def latent_of(self, inputs, latent, hidden, recent, inside):
        return jnp.broadcast_to(inputs.params, latent.shape)


@dataclasses.dataclass(frozen=True)
class OfAnotherText(BltSDrafter):
    """Takes what is predicted for the next row."""

    def latent_of(self, inputs, latent, hidden, recent, inside):
        return jnp.roll(super().latent_of(inputs, latent, hidden, recent, inside), 1, axis=0)


DRAFTERS = {
    STALE: BltSDrafter,
    PREDICTED: lambda length: BltSDrafter(length, "predicted"),
    MEAN: lambda length: MeanLatent(length, "predicted"),
    OTHER: lambda length: OfAnotherText(length, "predicted"),
}


def main():
    options = evidence.parsed(evidence.parser(__doc__, new=96))
    texts = evidence.prompts(options)
    settings = [
        {"model": "tiny", "method": "blt-s", "latents": latents,
         "options": {"draft_length": length}, "temperature": temperature}
        for temperature in evidence.TEMPERATURES
        for latents in DRAFTERS
        for length in (8, 16, 24)
        if latents in (STALE, PREDICTED) or length == 16
    ]  # fmt: skip
    study.run(
        "latents", options, settings[3:4] if options.smoke else settings,
        lambda setting: measure(setting, texts, options),
        conditions=evidence.conditions(options),
    )  # fmt: skip


def measure(setting: dict, texts: evidence.Texts, options) -> dict:
    model = evidence.loaded("tiny", dtype="float32")
    stems = tuple(text for _, text in texts)
    drafter = DRAFTERS[setting["latents"]](setting["options"]["draft_length"])
    given = {"draft_params": mean_latent(model, stems)} if setting["latents"] == MEAN else {}
    own = Contestant(decode.Method(model.target(), drafter), given)
    timed = setting["latents"] in (STALE, PREDICTED)
    results = evidence.decoded(
        model, stems, own, new=options.new, temperature=setting["temperature"]
    )
    apart = [result.stats for result in results if loops.period(result.bytes) is None]
    return evidence.drafted(setting, texts, options, own=own, timed=timed) | {
        "patches_per_global_pass": evidence.ratio(apart, "patches", "global_passes")
    }


def mean_latent(model, texts):
    """The mean of the latents of the prompts, of as many bytes as all of them have."""
    least = min(map(len, texts))
    ids = np.array([vocab.encode(text[:least]) for text in texts])
    out = model.module.apply({"params": model.params}, ids, method="forward")
    known = jnp.arange(out.latents.shape[1]) < out.closes.sum(1)[:, None]
    return jnp.where(known[..., None], out.latents, 0).sum((0, 1)) / known.sum()


if __name__ == "__main__":
    main()
