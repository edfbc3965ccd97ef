"""Cuts texts into patches with an entropy model alone: `patches`."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bytelax import architectures
from bytelax.compiling import late_jit, own_settings
from bytelax.model import Model, check_model
from bytelax.models import patching
from bytelax.models.byte_model import ByteModel
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import EXACT
from bytelax.models.patching import PatchingConfig
from bytelax.scoring.windows import Windows, run_texts

_SMALLEST = 64  # bytes; texts are padded to powers of two from here, so that programs are shared


@dataclasses.dataclass(frozen=True)
class Patcher:
    """An entropy model with its patching rule; `bytelax.load_patcher` returns one.

    Attributes:
      module: the entropy model, such as a byte transformer.
      params: its parameters, float32.
      rule: decides from the entropies where patches start.
    """

    module: ByteModel
    params: dict
    rule: PatchingConfig

    @classmethod
    def from_config(cls, config: ModelConfig, rule: PatchingConfig, params: dict) -> "Patcher":
        """Creates the patcher from what `checkpoints.read_patcher` returns."""
        return cls(architectures.module_of(config).clone(execution=EXACT), params, rule)

    @classmethod
    def of(cls, model: Model) -> "Patcher":
        """Returns the patcher of a model.

        Raises:
          ValueError: the model is not a BLT with entropy patching.
        """
        check_model(model)
        config = model.config
        if config.patching is None or config.patcher is None:
            raise ValueError("the model has no entropy model; load_patcher takes one alone")
        return cls.from_config(config.patcher, config.patching, model.params["patcher"])


@dataclasses.dataclass(frozen=True)
class Patches:
    """The patches of one text.

    Attributes:
      entropies: entropy of the prediction of each byte, in nats; patches start where it is high.
      starts: index of the first byte of each patch.
    """

    entropies: Float[np.ndarray, " N"]
    starts: Int[np.ndarray, " P"]

    @property
    def lengths(self) -> list[int]:
        """Lengths of the patches in bytes; they sum to the length of the text."""
        return np.diff(self.starts, append=len(self.entropies)).tolist()

    def split(self, text: bytes) -> list[bytes]:
        """Splits the text into its patches."""
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

    A patch starts where the rule starts one, and at the first byte. The BOS in front of a text is a
    patch of its own, which is left out. An empty text has no patches.

    A text that is longer than the window is read in overlapping windows, as by `bytelax.score`; the
    rule is applied to the entropies of the whole text. Beyond the first window they differ from
    those of a BLT that reads the text at once, because the context is cut.

    Args:
      patcher: from `bytelax.load_patcher`, or a BLT with entropy patching.
      texts: bytes of any kind, or text, which is encoded as UTF-8; read a few at a time.
      window: maximum number of bytes that the model sees at once; by default 1023, or the model's
        context if that is shorter.
      stride: number of bytes between windows; by default half of the window.
      batch: number of windows in a batch.
      progress: called with the number of bytes that are newly done.

    Raises:
      ValueError: the model has no entropy model, the window exceeds its context, the stride the
        window, or the batch is less than 1.
    """
    if not isinstance(patcher, Patcher):
        patcher = Patcher.of(patcher)
    windows = Windows.of(patcher.module.config.max_bytes, window, stride)
    compiled = functools.partial(_compiled(), patcher.module, patcher.params)
    run = lambda ids: compiled(jax.device_put(ids))  # noqa: E731
    found = run_texts(run, texts, windows, batch=batch, progress=progress)
    return (Patches(entropies, _starts(entropies, patcher.rule)) for (entropies,) in found)


@own_settings()
def _entropies(module, params, ids: Int[Array, "B S"]) -> tuple[Float[Array, "B S-1"]]:
    return (module.apply({"params": params}, ids, method="entropies")[:, :-1],)


_compiled = late_jit(_entropies, static_argnums=0)


def _starts(entropies, rule):
    """Returns the indices of first bytes. Position i closes a patch before byte i; the BOS is 0."""
    padded = np.zeros(max(_SMALLEST, 1 << (len(entropies) - 1).bit_length()), np.float32)
    padded[: len(entropies)] = entropies
    return np.flatnonzero(jax.device_get(_closes(jax.device_put(padded), rule))[: len(entropies)])


@functools.partial(jax.jit, static_argnums=1)
@own_settings()
def _closes(entropies: Float[Array, " S"], rule: PatchingConfig) -> Bool[Array, " S"]:
    positions = jnp.arange(len(entropies))[None]
    opened = patching.open_patches(patching.no_patch(1), entropies[None], positions, config=rule)
    return patching.closing(opened, positions)[0]
