"""Configs of the published sizes; `dataclasses.replace` makes variants of them.

BLT_1B is the released one (arXiv 2412.09871). Of the others only some figures are published, and
the rest is chosen so that these come out: the parameters of the global transformer and the decoder
of Fast BLT's 3B (arXiv 2605.08044), those of the stacks of BLT's 8B, the totals of the byte
transformers. The 3B's encoder is published with 26M and has 20M here.
`tests/models/test_presets.py` asserts the counts in the comments.
"""

from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.layers import TransformerConfig
from bytelax.models.patching import PatchingConfig


def _stack(dim: int, layers: int, *, head_dim: int, ffn_dim: int, **fields) -> TransformerConfig:
    heads = dim // head_dim
    return TransformerConfig(
        dim=dim, layers=layers, heads=heads, kv_heads=heads, head_dim=head_dim, ffn_dim=ffn_dim,
        **fields,
    )  # fmt: skip


# 99.5M. It cuts the texts of all the BLTs.
_PATCHER = ByteLMConfig(
    trunk=_stack(768, 14, head_dim=64, ffn_dim=2048, window=512, rope_theta=10_000.0)
)
_THRESHOLD = 1.335442066192627  # of the released entropy model, nats
_LONGEST = 24_576  # bytes

# 1.46B: 1.28B global, 158M decoder, 19M encoder. Hash tables 3.07B.
BLT_1B = BLTConfig(
    encoder=_stack(1024, 1, head_dim=64, ffn_dim=2816, window=512),
    global_transformer=_stack(2048, 25, head_dim=128, ffn_dim=5632),
    decoder=_stack(1024, 9, head_dim=64, ffn_dim=2816, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD),
    patcher=_PATCHER,
    max_bytes=_LONGEST,
)

# 3.01B: 2.83B global, 163M decoder, 20M encoder. Hash tables 3.07B.
BLT_3B = BLTConfig(
    encoder=_stack(1024, 1, head_dim=64, ffn_dim=2816, window=512),
    global_transformer=_stack(3072, 25, head_dim=128, ffn_dim=8192),
    decoder=_stack(1024, 9, head_dim=64, ffn_dim=2816, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD, max_patch_length=8),
    patcher=_PATCHER,
    patch_vectors=3,
    max_bytes=_LONGEST,
)

# 6.71B: 6.50B global, 183M decoder, 34M encoder. Hash tables 3.84B.
BLT_8B = BLTConfig(
    encoder=_stack(1280, 1, head_dim=64, ffn_dim=3584, window=512),
    global_transformer=_stack(4096, 32, head_dim=128, ffn_dim=11_008),
    decoder=_stack(1280, 6, head_dim=64, ffn_dim=3584, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD),
    patcher=_PATCHER,
    patch_vectors=4,
    max_bytes=_LONGEST,
)

# 85.3M. Published with a hidden width of 3072 in two matrices; SwiGLU has three.
BYTE_LM_85M = ByteLMConfig(trunk=_stack(768, 12, head_dim=64, ffn_dim=2048))

# 811M
BYTE_LM_800M = ByteLMConfig(trunk=_stack(2048, 16, head_dim=128, ffn_dim=5504))
