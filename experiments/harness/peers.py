"""transformers as a contestant: the same weights, decoded by `generate`. Needs torch."""

import pathlib
import time

import numpy as np
import torch
import transformers

import bytelax
from bytelax import vocab
from bytelax.checkpoints import layout
from bytelax.checkpoints import llama as llama_names

transformers.logging.set_verbosity_error()


def released_blt(directory: pathlib.Path) -> transformers.PreTrainedModel:
    """A BLT in the Hugging Face layout."""
    return transformers.BltForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def llama(model: bytelax.Model) -> transformers.PreTrainedModel:
    """A byte transformer as a Llama: the same model as long as texts fit its attention window."""
    c = model.config.trunk
    config = transformers.LlamaConfig(
        vocab_size=model.config.vocab_size,
        hidden_size=c.dim,
        intermediate_size=c.ffn_dim,
        num_hidden_layers=c.layers,
        num_attention_heads=c.heads,
        num_key_value_heads=c.kv_heads,
        head_dim=c.head_dim,
        rms_norm_eps=c.norm_eps,
        rope_theta=c.rope_theta,
        max_position_embeddings=model.config.max_bytes,
        tie_word_embeddings=False,
        attention_bias=False,
        mlp_bias=False,
        bos_token_id=vocab.BOS,
        eos_token_id=None,
        pad_token_id=vocab.EOS,
    )
    theirs = transformers.LlamaForCausalLM(config)
    state = layout.state_dict(model.config, model.params)
    theirs.load_state_dict(
        {
            name: torch.from_numpy(np.array(tensor.whole(), np.float32))
            for name, tensor in llama_names.to_state_dict(model.config, state).items()
            if not name.startswith("heads.")
        },
        strict=True,
    )
    return theirs.eval()


def generate(
    model: transformers.PreTrainedModel,
    prompt: bytes,
    count: int,
    *,
    use_cache: bool = True,
    assistant: transformers.PreTrainedModel | None = None,
    draft_length: int = 0,
) -> tuple[bytes, float]:
    """The greedy continuation and the seconds it took.

    Args:
      use_cache: False for a BLT, which has no cache that gives right bytes in 5.24.0.
      assistant: a small model that drafts `draft_length` bytes per round.
    """
    if assistant is not None:
        asked = assistant.generation_config
        asked.num_assistant_tokens = draft_length
        asked.num_assistant_tokens_schedule = "constant"
        asked.assistant_confidence_threshold = 0.0
    ids = torch.tensor([vocab.encode(prompt)])
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            do_sample=False,
            use_cache=use_cache,
            suppress_tokens=list(range(vocab.OFFSET)),
            assistant_model=assistant,
        )
    seconds = time.perf_counter() - begin
    return vocab.decode(out[0, ids.shape[1] :].tolist()), seconds
