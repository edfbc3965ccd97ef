"""`bytelax demo`: a model decoding before your eyes, within a minute."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.generation import generate
from bytelax.model import Model
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.hashing import HashConfig
from bytelax.models.layers import TransformerConfig
from bytelax.models.patching import PatchingConfig

_TEXT = b"A byte latent transformer reads bytes, and thinks in patches. "


@dataclasses.dataclass(frozen=True)
class Demo:
    """Show patches and cached decoding on a small model with random weights."""

    max_new_bytes: int = 256
    """Bytes to decode for each of four prompts."""

    def run(self) -> None:
        if self.max_new_bytes < 1:
            raise ValueError(f"max_new_bytes must be at least 1, got {self.max_new_bytes}")
        model = random_blt()
        ids = vocab.encode(_TEXT)
        print("A small Byte Latent Transformer with random weights (its bytes mean nothing).")
        print("The text in patches:", b"|".join(_split(_TEXT, model.patch_lengths(np.array(ids)))))
        plain = generate(
            model, [_TEXT] * 4, max_new_bytes=self.max_new_bytes, temperature=1.0, allow_eos=False
        )
        padded = generate(
            model,
            [_TEXT] * 4,
            max_new_bytes=self.max_new_bytes,
            temperature=1.0,
            allow_eos=False,
            window=4,
        )
        stats = plain.stats.to_dict()
        print(
            f"4 prompts, {stats['bytes']} bytes: {stats['bytes_per_second']:.0f} bytes/s, "
            f"{stats['bytes_per_patch']:.1f} bytes a patch, global passes for "
            f"{stats['global_passes'] / stats['bytes']:.0%} of the bytes, "
            f"compiled in {stats['compile_seconds']:.1f} s"
        )
        same = sum(a == b for a, b in zip(plain.bytes, padded.bytes, strict=True))
        print(f"Padded to windows of 4 bytes, {same} of 4 continuations are the same.")


def random_blt(seed: int = 0) -> Model:
    """A BLT of about a million parameters whose patches average a few bytes."""

    def stack(dim, layers, window=None):
        return TransformerConfig(
            dim=dim, layers=layers, heads=4, kv_heads=4, head_dim=dim // 4, ffn_dim=3 * dim,
            window=window,
        )  # fmt: skip

    config = BLTConfig(
        encoder=stack(64, 1, 512),
        global_transformer=stack(128, 3),
        decoder=stack(64, 2, 512),
        patcher=ByteLMConfig(trunk=stack(64, 2, 512)),
        patching=PatchingConfig(),
        hashing=HashConfig(vocab=509),
    )
    ids = jnp.asarray([vocab.encode(_TEXT)])
    params = BLT(config).init(jax.random.key(seed), ids)["params"]
    params = jax.tree.map(lambda x: x * 4 if x.ndim > 1 else x, params)
    entropies = Model(BLT(config), params).entropies(ids)
    threshold = float(jnp.quantile(entropies, 0.75))
    patching = dataclasses.replace(config.patching, threshold=threshold)
    return Model(BLT(dataclasses.replace(config, patching=patching)), params)


def _split(text: bytes, lengths: list[int]) -> list[bytes]:
    """The text cut into patches; the first holds the BOS, the last the byte to come."""
    ends = np.cumsum(lengths) - 1
    return [text[begin:end] for begin, end in itertools.pairwise(ends)]
