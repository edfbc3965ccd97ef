"""How a command decodes: a method and its options."""

import dataclasses
from typing import Annotated, Literal

import tyro

from bytelax import methods
from bytelax.decode.sampling import Sampling
from bytelax.loading import load
from bytelax.model import Model

_METHOD_OPTIONS = (
    "synchronous", "draft_layers", "latent", "unmask", "alpha", "gamma", "open_patch", "verify",
    "window", "exit_layer", "exit_head", "verify_from", "skip_attention", "skip_mlp", "branches",
    "nodes", "beam", "state_layer", "drafts",
)  # fmt: skip
_LENGTH = tyro.conf.arg(metavar="INT|ROWS:INT,...")


@dataclasses.dataclass(frozen=True)
class MethodFlags:
    """How to decode, and the law that is sampled."""

    method: str = "ar"
    """How to decode; see `bytelax methods`."""
    synchronous: float | None = None
    """Share of a BLT's rows that must have closed a patch before the global transformer runs for
    them together; rows wait. `ar` alone."""
    draft_length: Annotated[str | None, _LENGTH] = None
    """Bytes proposed in each round, by the number of rows that are running if so given. A method
    that drafts has its own default."""
    draft_model: str | None = None
    """The small model of `draft-model`: as `--model`."""
    draft_layers: int | None = None
    """Decoder layers that `blt-s` drafts with; all by default."""
    latent: Literal["reuse", "refresh"] | None = None
    """What `blt-s` and `blt-dv` draft on: the latent at hand, or one renewed by a second pass."""
    block_size: Annotated[str | None, _LENGTH] = None
    """Bytes in a block of `blt-d` and `blt-dv`; `blt-dv` takes a table as `--draft-length`."""
    unmask: Literal["confidence", "entropy", "entropy-minus-max", "one-step"] | None = None
    """Which masked bytes of a block each pass fills."""
    alpha: float | None = None
    """Confidence: fill bytes that are more probable than this."""
    gamma: float | None = None
    """Entropy: fill bytes whose entropies add up to at most this, in nats."""
    open_patch: Literal["latest", "truncated", "finish"] | None = None
    """What a block of `blt-d` reads that starts within a patch."""
    min_confidence: Annotated[str | None, tyro.conf.arg(metavar="FLOAT|adaptive")] = None
    """End a draft behind the first byte that its drafter thought less probable than this,
    or than a threshold that follows what each row keeps: "adaptive"."""
    verify: Literal["byte", "block"] | None = None
    """Judge sampled drafts byte by byte, or as a block."""
    exit_layer: int | None = None
    """Layers that `early-exit` and `composed` draft with; half of them by default."""
    exit_head: bool | None = None
    """Read the exit by its own head; by default where there is one."""
    verify_from: Literal["exit", "embedding"] | None = None
    """Verify from the states that an exit computed, or anew."""
    skip_attention: tuple[int, ...] | None = None
    """Blocks whose attention `layer-skip` skips, from 0."""
    skip_mlp: tuple[int, ...] | None = None
    """Blocks whose SwiGLU `layer-skip` skips."""
    branches: tuple[int, ...] | None = None
    """Children of a node on each level: `medusa` drafts a tree."""
    nodes: int | None = None
    """Nodes of a tree that are verified."""
    beam: int | None = None
    """Nodes of each level that go on: `eagle` drafts a tree."""
    state_layer: int | None = None
    """Depth of the state that `two-byte` reads; the last one by default."""
    drafts: int | None = None
    """Drafts among which `spectr` chooses."""
    window: int | None = None
    """Pad every window that is verified to that many bytes."""
    temperature: float = 0.0
    """0 takes the likeliest byte."""
    top_k: int = 0
    """Sample among that many likeliest bytes; 0 among all."""
    top_p: float = 1.0
    """Sample among the likeliest bytes that hold this much probability."""

    def keywords(self, dtype: str | None) -> dict:
        """As `generate` takes them.

        Args:
          dtype: of a draft model's weights.
        """
        keywords = {
            "method": self.method,
            "draft_length": _length("--draft-length", self.draft_length),
            "block_size": _length("--block-size", self.block_size),
            "min_confidence": _threshold(self.min_confidence),
            **{name: getattr(self, name) for name in _METHOD_OPTIONS},
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
        }
        if self.draft_model is not None:
            keywords["draft_model"] = load(self.draft_model, dtype=dtype)
        return keywords


def check(
    model: Model,
    method: str,
    options: dict,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> None:
    """Raises at once what decoding so would raise: ValueError, for an option of any bad kind."""
    law = Sampling.of(1, temperature=temperature, top_k=top_k, top_p=top_p)
    try:
        methods.build(
            method, model.part, law, capacity=model.config.max_bytes,
            **methods.settle(method, options),
        )  # fmt: skip
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise ValueError(f"method {method!r} with {given}: {error}") from None


def _length(flag: str, text: str | None) -> int | dict[int, int] | None:
    """A length of drafts, or one by the number of rows."""
    if text is None:
        return None
    try:
        if ":" not in text:
            return int(text)
        return {int(rows): int(n) for rows, n in (part.split(":") for part in text.split(","))}
    except ValueError:
        raise ValueError(f"{flag} takes a number, or ROWS:NUMBER,..., got {text!r}") from None


def _threshold(text: str | None) -> float | str | None:
    """A threshold of confidence, or the word for one that adapts."""
    if text is None or text == "adaptive":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--min-confidence takes a number, or adaptive, got {text!r}") from None
