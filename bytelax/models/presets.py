"""Configs of the published sizes; `dataclasses.replace` makes variants of them.

BLT_1B is the released one (arXiv 2412.09871). Of the others only some figures are published, and
the rest is chosen so that these come out: the parameters of the global transformer and the decoder
of Fast BLT's 3B (arXiv 2605.08044), those of the stacks of BLT's 8B, the totals of the byte
transformers. The 3B's encoder is published with 26M and has 20M here.
`tests/models/test_presets.py` asserts the counts in the comments.
"""

from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.patching import PatchingConfig
from bytelax.models.transformer_config import TransformerConfig

# 99.5M. It cuts the texts of all the BLTs.
_PATCHER = ByteLMConfig(
    trunk=TransformerConfig(dim=768, layers=14, window=512, rope_theta=10_000.0)
)
_THRESHOLD = 1.335442066192627  # of the released entropy model, nats
_LONGEST = 24_576  # bytes

# 1.46B: 1.28B global, 158M decoder, 19M encoder. Hash tables 3.07B.
BLT_1B = BLTConfig(
    encoder=TransformerConfig(dim=1024, layers=1, ffn_dim=2816, window=512),
    global_transformer=TransformerConfig(dim=2048, layers=25, heads=16, ffn_dim=5632),
    decoder=TransformerConfig(dim=1024, layers=9, ffn_dim=2816, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD),
    patcher=_PATCHER,
    max_bytes=_LONGEST,
)

# 3.01B: 2.83B global, 163M decoder, 20M encoder. Hash tables 3.07B.
BLT_3B = BLTConfig(
    encoder=TransformerConfig(dim=1024, layers=1, ffn_dim=2816, window=512),
    global_transformer=TransformerConfig(dim=3072, layers=25, heads=24, ffn_dim=8192),
    decoder=TransformerConfig(dim=1024, layers=9, ffn_dim=2816, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD, max_patch_length=8),
    patcher=_PATCHER,
    patch_vectors=3,
    max_bytes=_LONGEST,
)

# 6.71B: 6.50B global, 183M decoder, 34M encoder. Hash tables 3.84B.
BLT_8B = BLTConfig(
    encoder=TransformerConfig(dim=1280, layers=1, ffn_dim=3584, window=512),
    global_transformer=TransformerConfig(dim=4096, layers=32, heads=32, ffn_dim=11_008),
    decoder=TransformerConfig(dim=1280, layers=6, ffn_dim=3584, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD),
    patcher=_PATCHER,
    patch_vectors=4,
    max_bytes=_LONGEST,
)

# 85.3M. Published with a hidden width of 3072 in two matrices; SwiGLU has three.
BYTE_LM_85M = ByteLMConfig(trunk=TransformerConfig(dim=768, layers=12))

# 811M
BYTE_LM_800M = ByteLMConfig(trunk=TransformerConfig(dim=2048, layers=16, heads=16, ffn_dim=5504))
