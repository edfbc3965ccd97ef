"""Configs of the published model sizes. Use `dataclasses.replace` to make variants of them.

BLT_1B is the released model (arXiv 2412.09871). The papers give only some sizes of the other
models, and the remaining fields are chosen to reproduce these parameter counts: of the global
transformer and the decoder for the 3B of Fast BLT (arXiv 2605.08044), of the three stacks for the
8B of BLT, and in total for the byte transformers. The encoder of the 3B is published with 26M
parameters and has 20M here. `tests/models/test_presets.py` asserts the counts in the comments.
"""

from bytelax.models.configs import (
    BLTConfig,
    ByteLMConfig,
    HashConfig,
    PatchingConfig,
    TransformerConfig,
)

# 99.5M parameters; the entropy model of all the BLTs.
_PATCHER = ByteLMConfig(
    trunk=TransformerConfig(dim=768, layers=14, window=512, rope_theta=10_000.0)
)
_THRESHOLD = 1.335442066192627  # nats, as released with the entropy model
_LONGEST = 24_576  # bytes

# 1.46B parameters: 1.28B global, 158M decoder, 19M encoder. Hash tables: 3.07B.
BLT_1B = BLTConfig(
    encoder=TransformerConfig(dim=1024, layers=1, ffn_dim=2816, window=512),
    global_transformer=TransformerConfig(dim=2048, layers=25, heads=16, ffn_dim=5632),
    decoder=TransformerConfig(dim=1024, layers=9, ffn_dim=2816, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD),
    patcher=_PATCHER,
    max_bytes=_LONGEST,
)

# 3.01B parameters: 2.83B global, 163M decoder, 20M encoder. Hash tables: 3.07B.
BLT_3B = BLTConfig(
    encoder=TransformerConfig(dim=1024, layers=1, ffn_dim=2816, window=512),
    global_transformer=TransformerConfig(dim=3072, layers=25, heads=24, ffn_dim=8192),
    decoder=TransformerConfig(dim=1024, layers=9, ffn_dim=2816, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD, max_patch_length=8),
    patcher=_PATCHER,
    patch_vectors=3,
    max_bytes=_LONGEST,
)

# 6.71B parameters: 6.50B global, 183M decoder, 34M encoder. Hash tables: 3.84B.
BLT_8B = BLTConfig(
    encoder=TransformerConfig(dim=1280, layers=1, ffn_dim=3584, window=512),
    global_transformer=TransformerConfig(dim=4096, layers=32, heads=32, ffn_dim=11_008),
    decoder=TransformerConfig(dim=1280, layers=6, ffn_dim=3584, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD),
    patcher=_PATCHER,
    patch_vectors=4,
    max_bytes=_LONGEST,
)

# 85.3M parameters. The published model has an MLP of two matrices with a hidden width of 3072; the
# SwiGLU here has three matrices.
BYTE_LM_85M = ByteLMConfig(trunk=TransformerConfig(dim=768, layers=12))

# 811M parameters.
BYTE_LM_800M = ByteLMConfig(trunk=TransformerConfig(dim=2048, layers=16, heads=16, ffn_dim=5504))

# 3.15M parameters.
BYTE_LM_LAPTOP = ByteLMConfig(
    trunk=TransformerConfig(dim=256, layers=4, heads=4, ffn_dim=640), max_bytes=4096
)

# The sizes of the bundled entropy model and BLT.
ENTROPY_LAPTOP = ByteLMConfig(
    trunk=TransformerConfig(dim=96, layers=2, heads=2, ffn_dim=256, window=128)
)
BLT_LAPTOP = BLTConfig(
    encoder=TransformerConfig(dim=128, layers=1, heads=2, ffn_dim=384, window=16),
    global_transformer=TransformerConfig(dim=256, layers=6, heads=4, ffn_dim=704),
    decoder=TransformerConfig(dim=128, layers=3, heads=2, ffn_dim=384, window=8),
    patching=PatchingConfig(threshold=2.4749, max_patch_length=8),
    patcher=ENTROPY_LAPTOP,
    hashing=HashConfig(vocab=2039),
    decoder_input="embedding",
)

# 109M parameters: 85.7M global, 18.0M decoder, 4.9M encoder. Hash tables: 61.5M.
BLT_100M = BLTConfig(
    encoder=TransformerConfig(dim=512, layers=1, window=512),
    global_transformer=TransformerConfig(dim=768, layers=12),
    decoder=TransformerConfig(dim=512, layers=4, window=512),
    patching=PatchingConfig(threshold=_THRESHOLD),
    patcher=_PATCHER,
    hashing=HashConfig(vocab=20_011),
    max_bytes=8192,
)

ENTROPY_100M = _PATCHER
