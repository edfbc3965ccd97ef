"""llama.cpp as a contestant, through its Python package: the same weights as a GGUF file."""

import ctypes
import pathlib
import time
from collections.abc import Sequence

import gguf
import llama_cpp
import numpy as np

import bytelax
from bytelax import vocab
from bytelax.checkpoints import layout

TYPES = {
    "float32": gguf.GGMLQuantizationType.F32,
    "bfloat16": gguf.GGMLQuantizationType.BF16,
    "int8": gguf.GGMLQuantizationType.Q8_0,
}


def write(model: bytelax.Model, path: pathlib.Path, dtype: str) -> None:
    """Writes a byte transformer, whose texts must fit its attention window, as a GGUF file."""
    c = model.config.trunk
    file = gguf.GGUFWriter(path, "llama")
    file.add_context_length(model.config.max_bytes)
    file.add_embedding_length(c.dim)
    file.add_block_count(c.layers)
    file.add_feed_forward_length(c.ffn_dim)
    file.add_head_count(c.heads)
    file.add_head_count_kv(c.kv_heads)
    file.add_key_length(c.head_dim)
    file.add_value_length(c.head_dim)
    file.add_rope_dimension_count(c.head_dim)
    file.add_rope_freq_base(c.rope_theta)
    file.add_layer_norm_rms_eps(c.norm_eps)
    file.add_vocab_size(model.config.vocab_size)
    file.add_tokenizer_model("no_vocab")

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.layers)
    for name, tensor in layout.state_dict(model.config, model.params).items():
        if name.startswith("heads."):
            continue
        # Rotary pairs lie side by side in both, so that nothing is permuted.
        known = name if name.startswith("lm_head") else f"model.{name}"
        stored = names.get_name(known, try_suffixes=(".weight",))
        array = np.ascontiguousarray(tensor.whole(), np.float32)
        if array.ndim == 1:
            file.add_tensor(stored, array)
        else:
            kind = TYPES[dtype]
            file.add_tensor(stored, gguf.quants.quantize(array, kind), raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


class Contestant:
    """A GGUF file in llama.cpp: one sequence, read in windows of any number of ids."""

    def __init__(self, path: pathlib.Path, *, capacity: int, threads: int):
        silent = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p())
        self.silent = silent  # or it is collected while llama.cpp still calls it
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        how = llama_cpp.llama_context_default_params()
        how.n_ctx = how.n_batch = how.n_ubatch = capacity
        how.n_threads = how.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, how)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot read {path}")
        self.batch = llama_cpp.llama_batch_init(capacity, 0, 1)
        self.length = 0

    def extend(self, ids: Sequence[int]) -> np.ndarray:
        """Reads a window after what was read; returns the logits [W, V] behind each of its ids."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for place, one in enumerate(ids):
            batch.token[place] = one
            batch.pos[place] = self.length + place
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            batch.logits[place] = True
        if llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama.cpp could not decode a window")
        self.length += len(ids)
        logits = llama_cpp.llama_get_logits(self.context)
        return np.ctypeslib.as_array(logits, (len(ids), vocab.SIZE))

    def rewind(self, length: int) -> None:
        """Forgets all but the first ids."""
        memory = llama_cpp.llama_get_memory(self.context)
        llama_cpp.llama_memory_seq_rm(memory, 0, length, -1)
        self.length = length

    def greedy(self, prompt: bytes, count: int, *, draft=None) -> tuple[bytes, float]:
        """The greedy continuation, and the seconds after the prompt.

        Args:
          draft: from the ids so far to ids that may follow; they are read in one window.
        """
        self.rewind(0)
        ids = vocab.encode(prompt)
        self.extend(ids[:-1])
        ids, end = list(ids), len(ids) + count
        begin = time.perf_counter()
        while len(ids) < end:
            drafted = [int(x) for x in draft(np.array(ids))][: end - len(ids) - 1] if draft else []
            before = self.length
            logits = self.extend([ids[-1], *drafted])
            best = (logits[:, vocab.OFFSET :].argmax(-1) + vocab.OFFSET).tolist()
            kept = 0
            while kept < len(drafted) and drafted[kept] == best[kept]:
                kept += 1
            ids += best[: kept + 1]
            if kept < len(drafted):
                self.rewind(before + kept + 1)
        return vocab.decode(ids[end - count :]), time.perf_counter() - begin

    def window_seconds(self, prompt: bytes, width: int, count: int) -> float:
        """Seconds of a pass over `width` ids after a prompt, the mean of `count` of them."""
        self.rewind(0)
        ids = vocab.encode(prompt)
        self.extend(ids)
        window = list(ids[-width:])
        begin = time.perf_counter()
        for _ in range(count):
            self.extend(window)
            self.rewind(len(ids))
        return (time.perf_counter() - begin) / count
