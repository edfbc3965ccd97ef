"""Random Byte Latent Transformers whose text wanders on, in patches of a chosen length."""

import dataclasses

import jax
import numpy as np

import bytelax
from bytelax import architectures, vocab
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import TransformerConfig
from bytelax.models.patching import PatchingConfig
from bytelax.options import BltSHead, DFlashHead, EagleHead, HeadsConfig

BEGIN = b"The cell membrane is a thin layer that"  # of the text of a bundled model


def config(*, encoder, decoder, global_, patcher) -> BLTConfig:
    """A BLT; each network as (width, layers, heads)."""
    trunk = _stack(*patcher, window=512, rope_theta=10_000.0)
    return BLTConfig(
        encoder=_stack(*encoder, window=512),
        decoder=_stack(*decoder, window=512),
        global_transformer=_stack(*global_),
        patcher=ByteLMConfig(trunk=trunk),
        hashing=HashConfig(vocab=5003),
        patching=PatchingConfig(),
        patch_vectors=2,
    )


def draft_heads(decoder: TransformerConfig) -> HeadsConfig:
    """Heads as `tiny` has them: EAGLE and DFlash on three depths, and predicted latents."""
    depths = (1, (decoder.layers + 1) // 2, decoder.layers)
    return HeadsConfig(
        eagle=EagleHead(depths=depths, window=64, latent=True),
        dflash=DFlashHead(depths=depths, window=64, layers=2, block_size=8, latent=True),
        blt_s=BltSHead(ffn_dim=2 * decoder.dim),
    )


def model(config: BLTConfig, seed: int, dtype: str = "float32") -> bytelax.Model:
    """Weights that keep the variance of what passes through them: greedy text wanders on."""
    module = BLT(config)
    shapes = architectures.shapes(module)
    rng = np.random.default_rng(seed)

    def weight(path, x):
        names = [entry.key for entry in path]
        kept = "float32" if names[0] == "patcher" else dtype
        if names[-1] == "scale":
            return jax.numpy.ones(x.shape, kept)
        if names[-1] == "embedding":
            deviation = 0.5
        else:
            inputs = x.shape[0] * x.shape[1] if names[-2] == "out" else x.shape[0]
            deviation = inputs**-0.5
        if names[:2] == ["patcher", "head"]:
            deviation *= 3  # entropies lie further apart, and further from the threshold
        drawn = rng.standard_normal(x.shape, np.float32) * np.float32(deviation)
        return jax.numpy.asarray(drawn, kept)

    return bytelax.Model(module, jax.tree_util.tree_map_with_path(weight, shapes))


def own_text(
    model: bytelax.Model, size: int, *, bytes_per_patch: float, seed: int, rewrites: int = 2
) -> tuple[bytelax.Model, bytes]:
    """Text of the model's own, and the model with the threshold that suits it.

    Args:
      size: bytes of the text.
      bytes_per_patch: what the threshold aims at.
      seed: of the random text that comes first.
      rewrites: how often the model writes the text, each time with the threshold of the last one.
    """
    text = np.random.default_rng(seed).integers(32, 127, size, np.uint8).tobytes()
    for _ in range(rewrites):
        model = with_threshold(model, text, bytes_per_patch)
        begin = text[:16]
        out = bytelax.generate(model, [begin], max_new_bytes=size - len(begin), allow_eos=False)
        text = begin + out.bytes[0]
    return with_threshold(model, text, bytes_per_patch), text


def own_texts(
    model: bytelax.Model, size: int, *, bytes_per_patch: float, count: int, rewrites: int = 2
) -> tuple:
    """The model with the threshold of the first of its own texts, and `count` such texts."""
    model, first = own_text(model, size, bytes_per_patch=bytes_per_patch, seed=0, rewrites=rewrites)
    begins = [
        np.random.default_rng(seed).integers(32, 127, 16, np.uint8).tobytes()
        for seed in range(1, count)
    ]
    if not begins:
        return model, first
    out = bytelax.generate(model, begins, max_new_bytes=size - 16, allow_eos=False)
    return model, first, *(begin + own for begin, own in zip(begins, out.bytes, strict=True))


def or_bundled(shape: str, size: int, dtype: str = "float32") -> tuple[bytelax.Model, bytes]:
    """A bundled model or a random one of `SHAPES`, and text of its own of `size` bytes."""
    if shape not in SHAPES:
        held = bytelax.load(shape, dtype=dtype)
        out = bytelax.generate(held, [BEGIN], max_new_bytes=size, temperature=1, allow_eos=False)
        return held, (BEGIN + out.bytes[0])[:size]
    changed = dataclasses.replace(
        SHAPES[shape], decoder_input="embedding", patching=PatchingConfig(max_patch_length=8)
    )
    return own_text(model(changed, 0, dtype), size, bytes_per_patch=4.5, seed=0, rewrites=1)


def with_threshold(model: bytelax.Model, text: bytes, bytes_per_patch: float) -> bytelax.Model:
    """Cuts `text` every `bytes_per_patch` bytes on average, in the widest gap near there."""
    entropies = np.sort(np.asarray(model.entropies(np.array([vocab.encode(text)])))[0])
    middle = round(len(entropies) * (1 - 1 / bytes_per_patch))
    near = entropies[max(middle - 5, 0) : middle + 5]
    widest = np.diff(near).argmax()
    threshold = float((near[widest] + near[widest + 1]) / 2)
    patching = dataclasses.replace(model.config.patching, threshold=threshold)
    changed = dataclasses.replace(model.config, patching=patching)
    return bytelax.Model(BLT(changed), model.params)


def _stack(dim, layers, heads, **more):
    ffn = 256 * -(-int(8 * dim / 3) // 256)
    return TransformerConfig(
        dim=dim, layers=layers, heads=heads, kv_heads=heads, head_dim=dim // heads, ffn_dim=ffn,
        **more,
    )  # fmt: skip


# By the number of parameters, hash tables aside; 100M has as many layers as the 1B, of a quarter of
# its widths.
SHAPES = {
    "smallest": config(
        encoder=(32, 1, 2), decoder=(32, 1, 2), global_=(64, 1, 2), patcher=(24, 1, 1)
    ),
    "35M": config(
        encoder=(256, 1, 4), decoder=(256, 4, 4), global_=(512, 8, 8), patcher=(192, 4, 3)
    ),
    "100M": config(
        encoder=(256, 1, 4), decoder=(256, 9, 4), global_=(512, 25, 4), patcher=(192, 14, 3)
    ),
}
