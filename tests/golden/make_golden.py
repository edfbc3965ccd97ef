"""Writes the golden cases: tiny random `BltForCausalLM`s and what transformers computes with them.

    python tests/golden/make_golden.py          # needs torch 2.13.0 and transformers 5.23.0

A case is `<name>/config.json, model.safetensors, golden.npz`; `cases.py` documents the arrays.
Patch lengths come from `patch_lengths` below rather than from transformers, which has no
monotonicity and no threshold_add and mistreats max_patch_length at the last position. Entropies,
hash ids and logits are transformers' own; its cached path is broken, so the cache stays off.
"""

import dataclasses
import json
import pathlib

import numpy as np
import torch
from transformers import BltConfig, BltForCausalLM
from transformers.models.blt import modeling_blt

TEXT = (
    "The quick brown fox jumps over the lazy dog.\n"
    "def area(r):\n    return 3.14159 * r ** 2  # πr²\n"
    "Ünïcödé: 日本語のテキスト, Привет, καλημέρα, 🙂🙃 "
    "0123456789 aaaaaaaaaaaa 0123456789 the the the."
).encode()
NEW_BYTES = 24
MIN_MARGIN = 1e-3  # every decision is at least that clear, in nats and in logits


@dataclasses.dataclass(frozen=True)
class Case:
    patch_vectors: int = 2
    kv_heads: int = 2  # of the two local heads
    global_kv_heads: int = 4  # of the four global heads
    window: int = 512
    patcher_window: int = 512
    byte_patches: bool = False
    monotonicity: bool = False
    threshold_add: float | None = None
    max_patch_length: int | None = None
    long_patch: int | None = None  # bytes of the one long patch in the text
    layers: int = 1  # of all stacks but the decoder, which has two
    hash_functions: int = 1
    ropes: dict = dataclasses.field(default_factory=dict)  # by the part of the config

    @property
    def rule(self):
        return {
            "monotonicity": self.monotonicity,
            "threshold_add": self.threshold_add,
            "max_patch_length": self.max_patch_length,
        }


CASES = {
    "base": Case(),
    "gqa_k4": Case(patch_vectors=4, kv_heads=1, global_kv_heads=2),
    "window": Case(window=8, patcher_window=16),
    "max_patch_length": Case(max_patch_length=4),
    "monotonicity": Case(monotonicity=True),
    "threshold_add": Case(threshold_add=0.05),
    "byte_patches": Case(byte_patches=True, hash_functions=2),
    "long_patch": Case(long_patch=1000),
}


def patch_lengths(entropies, threshold, *, monotonicity, threshold_add, max_patch_length):
    """Lengths of the patches of the text and the byte after it: they sum to S + 1."""
    starts = [0, 1]
    for i in range(1, len(entropies)):
        rise = entropies[i] - entropies[i - 1]
        if monotonicity:
            new = i == 1 or rise > threshold
        elif threshold_add is not None:
            new = i == 1 or (i > 2 and rise > threshold_add and entropies[i] > threshold)
        else:
            new = entropies[i] > threshold
        if new:
            starts.append(i + 1)
    lengths = []
    for length in np.diff([*starts, len(entropies) + 1]).tolist():
        while max_patch_length is not None and length > max_patch_length:
            lengths.append(max_patch_length)
            length -= max_patch_length
        lengths.append(length)
    return lengths


def threshold_margin(entropies, threshold, *, monotonicity, threshold_add, max_patch_length):
    """Least distance of a compared number to what it is compared with."""
    rises = np.diff(entropies)[1:]
    margins = [np.abs((rises if monotonicity else entropies[1:]) - threshold)]
    if threshold_add is not None:
        margins.append(np.abs(rises - threshold_add))
    return float(min(part.min() for part in margins))


def build(case, seed):
    """A random model whose norms are no ones and whose entropies spread."""

    def stack(dim, layers, heads, kv_heads, **more):
        return {
            "hidden_size": dim,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": 2 * dim,
            **more,
        }

    local = {"cross_attn_k": case.patch_vectors, "hidden_size_global": 32}
    config = BltConfig(
        vocab_size=260,
        cross_attn_k=case.patch_vectors,
        patching_mode="byte" if case.byte_patches else "entropy",
        patch_in_forward=not case.byte_patches,
        max_patch_length=case.max_patch_length,
        encoder_hash_byte_group_size=[3, 5, 8],
        encoder_hash_byte_group_vocab=130,
        encoder_hash_byte_group_nb_functions=case.hash_functions,
        local_attention_window_len=case.window,
        use_cache=False,
        tie_word_embeddings=False,
        encoder_config=stack(
            16, case.layers, 2, case.kv_heads, **local, cross_attn_all_layers=False
        ),
        decoder_config=stack(16, 2, 2, case.kv_heads, **local, cross_attn_all_layers=True),
        global_config=stack(32, case.layers, 4, case.global_kv_heads),
        patcher_config=stack(16, case.layers, 2, case.kv_heads, sliding_window=case.patcher_window),
    )
    for part, rope in case.ropes.items():
        getattr(config, part).rope_parameters = rope
    model = BltForCausalLM._from_config(config, attn_implementation="eager").float().eval()
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(model.named_parameters()):
        noise = torch.randn(weight.shape, generator=generator)
        if "norm" in name:
            weight.copy_(1 + 0.25 * noise)
        elif "embed" in name and "projection" not in name:
            weight.copy_(0.5 * noise)
        else:
            weight.copy_(noise * weight.shape[1] ** -0.5)
        if name.endswith("patcher.lm_head.weight"):
            weight.mul_(2.5)
    return model


def entropies_of(model, ids):
    if not model.config.patch_in_forward:
        return np.zeros(len(ids), np.float32)
    return model.model.patcher(torch.tensor([ids]))[0][0].numpy()


def lengths_of(model, case, ids):
    if case.byte_patches:
        return [1] * (len(ids) + 1)
    return patch_lengths(entropies_of(model, ids), model.config.patching_threshold, **case.rule)


def logits_of(model, case, ids):
    lengths = torch.tensor([lengths_of(model, case, ids)])
    return model(torch.tensor([ids]), patch_lengths=lengths, use_cache=False).logits[0].numpy()


def hash_ids_of(model, ids):
    """Rows of the fused table, [S, hashes]: what transformers looks up."""
    config, looked_up = model.config, []

    def table(rows):
        looked_up.append(rows[0].numpy())
        return model.model.encoder_hash_tok_embedding(rows)

    modeling_blt.compute_hash_embeddings(
        torch.tensor([ids]),
        model.model.local_encoder,
        table,
        config.encoder_hash_byte_group_nb_functions,
        config.encoder_hash_byte_group_size,
        config.encoder_hash_byte_group_vocab,
    )
    return np.stack(looked_up, axis=-1)


def gap_near(values, quantile):
    """The middle of the widest gap between values near a quantile."""
    values = np.sort(values)
    middle, reach = int(quantile * len(values)), len(values) // 12
    near = values[middle - reach : middle + reach]
    widest = np.diff(near).argmax()
    return float(np.float32((near[widest] + near[widest + 1]) / 2))


def text_with_long_patch(model, length):
    """Ids of a text with a patch of `length` bytes, and the threshold that makes it so.

    The long patch is written with the few bytes after which the entropy model is surest.
    """
    rng = np.random.default_rng(0)
    every = np.concatenate([rng.permutation(256) for _ in range(8)]) + 4
    entropy = entropies_of(model, [1, *every])[1:]
    by_entropy = np.argsort([entropy[every == i].mean() for i in range(4, 260)]) + 4
    surest, least_sure = by_entropy[:6], by_entropy[-100:]
    ids = [1, *rng.choice(least_sure, 60), *rng.choice(surest, length - 1)]
    ids = [int(i) for i in [*ids, *rng.choice(least_sure, 60)]]
    entropy = entropies_of(model, ids)
    inside = entropy[61 : 61 + length - 1].max()
    above = entropy[entropy > inside].min(initial=inside + 1)
    return ids, float(np.float32((inside + above) / 2))


def make(case, seed):
    """The model and its arrays, or None where some decision is too close."""
    model = build(case, seed)
    ids = [1, *(byte + 4 for byte in TEXT)]
    if case.long_patch is not None:
        ids, model.config.patching_threshold = text_with_long_patch(model, case.long_patch)
    elif not case.byte_patches:
        entropies = entropies_of(model, ids)[1:]
        compared = np.diff(entropies) if case.monotonicity else entropies
        model.config.patching_threshold = gap_near(compared, 0.7)

    text, gap = list(ids), np.inf
    for _ in range(NEW_BYTES):
        bytes_only = logits_of(model, case, text)[-1, 4:]
        runner_up, best = np.sort(bytes_only)[-2:]
        gap = min(gap, float(best - runner_up))
        text.append(int(bytes_only.argmax()) + 4)
    margin = np.inf
    if not case.byte_patches:
        margin = threshold_margin(
            entropies_of(model, text), model.config.patching_threshold, **case.rule
        )
    lengths = lengths_of(model, case, ids)
    if min(gap, margin) < MIN_MARGIN or case.long_patch not in (None, max(lengths)):
        return None

    positions = np.arange(len(ids))
    if case.long_patch is not None:
        positions = np.concatenate([positions[40:64], positions[64:1050:100], positions[-30:]])
    columns = np.arange(0, 260, 7)
    return model, {
        "ids": np.array(ids, np.int32),
        "entropies": entropies_of(model, ids),
        "hash_ids": hash_ids_of(model, ids).astype(np.int32),
        "patch_lengths": np.array(lengths, np.int32),
        "logit_positions": positions.astype(np.int32),
        "logit_columns": columns.astype(np.int32),
        "logits": logits_of(model, case, ids)[positions][:, columns],
        "continuation": np.array(text[len(ids) :], np.int32),
        "continuation_patch_lengths": np.array(lengths_of(model, case, text), np.int32),
        "threshold_margin": np.float32(margin),
        "top2_margin": np.float32(gap),
    }


def write(directory, model, case, arrays):
    model.save_pretrained(directory)
    path = directory / "config.json"
    config = json.loads(path.read_text())
    # As configurations converted by earlier transformers spell what the library itself ignores.
    config["monotonicity"] = case.monotonicity
    config["patching_threshold_add"] = case.threshold_add
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (directory / "generation_config.json").unlink(missing_ok=True)
    np.savez_compressed(directory / "golden.npz", **arrays)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    here = pathlib.Path(__file__).parent
    for name, case in CASES.items():
        for seed in range(200):
            made = make(case, seed)
            if made is not None:
                break
        else:
            raise SystemExit(f"{name}: no seed gives clear margins")
        model, arrays = made
        write(here / name, model, case, arrays)
        files = sum(path.stat().st_size for path in (here / name).iterdir())
        lengths = arrays["patch_lengths"]
        print(
            f"{name:17} seed {seed:3}  {files / 1024:4.0f} KiB  {len(arrays['ids'])} ids in "
            f"{len(lengths)} patches, longest {lengths.max()}  margins: threshold "
            f"{arrays['threshold_margin']:.1e}, top 2 {arrays['top2_margin']:.1e}  "
            f"logits up to {np.abs(arrays['logits']).max():.1f}"
        )


if __name__ == "__main__":
    main()
