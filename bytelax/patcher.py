"""Where an entropy model cuts texts into patches: `patches`."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bytelax.long_reductions import compiler_options
from bytelax.model import Model
from bytelax.models import patching
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.execution import EXACT
from bytelax.models.patching import PatchingConfig
from bytelax.windows import Windows, tell_texts

_SMALLEST = 64  # bytes; texts are padded to powers of two from here, so that programs are shared


@dataclasses.dataclass(frozen=True)
class Patcher:
    """An entropy model and its rule, which `bytelax.load_patcher` returns.

    Attributes:
      module: a byte transformer.
      params: its parameters, float32.
      rule: where patches start, from its entropies.
    """

    module: ByteLM
    params: dict
    rule: PatchingConfig

    @classmethod
    def from_config(cls, config: ByteLMConfig, rule: PatchingConfig, params: dict) -> "Patcher":
        """From what `checkpoints.read_patcher` returns."""
        return cls(ByteLM(config, EXACT), params, rule)

    @classmethod
    def of(cls, model: Model) -> "Patcher":
        """That of a model.

        Raises:
          ValueError: it is no BLT that cuts patches by entropy.
        """
        config = model.config
        if not isinstance(config, BLTConfig) or config.patching.mode != "entropy":
            raise ValueError("the model has no entropy model; load_patcher takes one alone")
        assert config.patcher is not None  # an entropy needs it
        return cls.from_config(config.patcher, config.patching, model.params["patcher"])


@dataclasses.dataclass(frozen=True)
class Patches:
    """A text as it is cut.

    Attributes:
      entropies: entropy of the distribution of each byte given those before, nats. A patch starts
        where it is high.
      starts: the first byte of each patch.
    """

    entropies: Float[np.ndarray, " N"]
    starts: Int[np.ndarray, " P"]

    @property
    def lengths(self) -> list[int]:
        """Bytes in each patch; they sum to those of the text."""
        return np.diff(self.starts, append=len(self.entropies)).tolist()

    def split(self, text: bytes) -> list[bytes]:
        """The patches of the text."""
        sizes = zip(self.starts.tolist(), self.lengths, strict=True)
        return [text[start : start + size] for start, size in sizes]


def patches(
    patcher: Patcher | Model,
    texts: Iterable[bytes | str],
    *,
    window: int | None = None,
    stride: int | None = None,
    batch: int = 8,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Patches]:
    """Cuts texts into patches, and yields them in the order of the texts.

    A patch starts where the rule says so, and at the first byte. The BOS in front of a text is a
    patch of its own, which is left out. An empty text has no patches.

    A text that is longer than the window is read in several, as by `bytelax.score`; the rule is
    applied to the entropies of the whole text. Beyond the first window they are not to the last
    digit those that a BLT has that reads the text at once.

    Args:
      patcher: from `bytelax.load_patcher`, or a BLT that has one.
      texts: bytes of any kind, or text that is encoded as UTF-8; taken as they are needed.
      window: most bytes that the model sees at once; by default 1023, or its context if shorter.
      stride: by default half of the window; see `bytelax.score`.
      batch: windows in a pass.
      progress: called with the number of bytes that have just been read.

    Raises:
      ValueError: the model has no entropy model, the window exceeds its context, the stride the
        window, or the batch is less than 1.
    """
    if isinstance(patcher, Model):
        patcher = Patcher.of(patcher)
    windows = Windows.of(patcher.module.config.max_bytes, window, stride)
    tell = functools.partial(_compiled(), patcher.module, patcher.params)
    told = tell_texts(tell, texts, windows, batch=batch, progress=progress)
    return (Patches(entropies, _starts(entropies, patcher.rule)) for (entropies,) in told)


@functools.cache
def _compiled():
    return jax.jit(_entropies, static_argnums=0, compiler_options=compiler_options())


def _entropies(module, params, ids: Int[Array, "B S"]) -> tuple[Float[Array, "B S-1"]]:
    return (module.apply({"params": params}, ids, method="entropies")[:, :-1],)


def _starts(entropies, rule):
    """The bytes at which patches start: position i, the BOS at 0, closes one before byte i."""
    padded = np.zeros(max(_SMALLEST, 1 << (len(entropies) - 1).bit_length()), np.float32)
    padded[: len(entropies)] = entropies
    return np.flatnonzero(np.asarray(_closes(padded, rule))[: len(entropies)])


@functools.partial(jax.jit, static_argnums=1)
def _closes(entropies: Float[Array, " S"], rule: PatchingConfig) -> Bool[Array, " S"]:
    positions = jnp.arange(len(entropies))[None]
    opened = patching.open_patches(patching.no_patch(1), entropies[None], positions, config=rule)
    return patching.closing(opened, positions)[0]
