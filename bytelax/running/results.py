"""What text generation returns: results, and their statistics."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bytelax import calculator
from bytelax.calculator import Passes, Sizes
from bytelax.decode.record import Counts, Origins


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts, costs and times of a generation. Ratios are None where they are undefined.

    Attributes:
      bytes: ids emitted, including EOS and stop strings.
      rounds: draft-verify-commit rounds.
      drafted: bytes proposed, without those after an end of the text (of the byte budget, or a
        drafted EOS or stop string): they count neither as kept nor as refused.
      accepted: proposed bytes that were emitted.
      accepted_by_position: `accepted` for each position in the draft.
      drafted_by_position: `drafted` for each position in the draft; `to_dict` adds the ratio of the
        two, `acceptance_by_position`.
      patches: patches that closed.
      decoder_passes: forward passes of the decoder since the prefill, including those made to
        draft.
      encoder_passes: forward passes of the encoder since the prefill, without those made to draft.
      global_passes: windows in which the row closed a patch, plus passes of the global transformer
        made to draft.
      patcher_passes: forward passes of the entropy model, including those made to draft.
      draft_encoder_passes: encoder passes made only to draft.
      draft_model_passes: forward passes of a drafter's own network.
      global_chunks: runs of the global transformer for the whole batch.
      batch_windows: windows run for the whole batch, including those in which a row waited or had
        ended.
      bandwidth_gb: weights read, in GB, by the formula of Fast BLT (arXiv 2605.08044, eq. 8):
        2 (N_dec P_dec + N_glob (P_enc + P_glob) + N_draft P_draft) / 1e9. The last term is not in
        the paper and counts all weights of a drafter's own network at every pass. Embedding tables
        are not counted.
      bandwidth_gb_with_patcher: `bandwidth_gb` plus the weights of the entropy model.
      seconds: wall-clock time of the batch without compiling; None for a single row.
      prefill_seconds: the part of `seconds` spent on the prefill.
      compile_seconds: time spent compiling.
    """

    bytes: int
    rounds: int
    drafted: int
    accepted: int
    accepted_by_position: tuple[int, ...]
    drafted_by_position: tuple[int, ...]
    patches: int
    decoder_passes: int
    encoder_passes: int
    global_passes: int
    patcher_passes: int
    draft_encoder_passes: int
    draft_model_passes: int
    global_chunks: int
    batch_windows: int
    bandwidth_gb: float
    bandwidth_gb_with_patcher: float
    seconds: float | None = None
    prefill_seconds: float | None = None
    compile_seconds: float | None = None

    @classmethod
    def of_row(
        cls, weights: Sizes, counts: Counts, passes: dict[str, np.ndarray], row: int
    ) -> "Statistics":
        """Creates the statistics of a row, from the counts of the loop and the target's passes.

        All are on the host. `weights` are the numbers that a pass of each network reads.
        """
        made = {name: int(number[row]) for name, number in passes.items()}
        drafting = {
            name: int(number[row]) for name, number in counts.draft_passes._asdict().items()
        }
        decoder = made.get("decoder_passes", 0) + drafting["decoder"]
        encoder = made.get("encoder_passes", 0) + drafting["encoder"]
        global_ = made.get("global_passes", 0) + drafting["global_"]
        patcher = made.get("patcher_passes", 0) + drafting["patcher"]
        total = Passes(decoder, encoder, global_, patcher, drafting["draft_model"])
        return cls(
            bytes=int(counts.bytes[row]),
            rounds=int(counts.rounds[row]),
            drafted=int(counts.drafted[row]),
            accepted=int(counts.accepted[row]),
            accepted_by_position=tuple(counts.accepted_by_position[row].tolist()),
            drafted_by_position=tuple(counts.drafted_by_position[row].tolist()),
            patches=made.get("patches", 0),
            decoder_passes=decoder,
            encoder_passes=made.get("encoder_passes", 0),
            global_passes=global_,
            patcher_passes=patcher,
            draft_encoder_passes=drafting["encoder"],
            draft_model_passes=drafting["draft_model"],
            global_chunks=made.get("global_chunks", 0),
            batch_windows=made.get("batch_windows", int(counts.rounds[row])),
            bandwidth_gb=calculator.bandwidth_gb(total, weights),
            bandwidth_gb_with_patcher=calculator.bandwidth_gb_with_patcher(total, weights),
        )

    @classmethod
    def sum(cls, batches: Sequence["Statistics"]) -> "Statistics":
        """Sums over batches that ran one after another; times are None if one of them is."""
        summed: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            values = [vars(batch)[field.name] for batch in batches]
            if field.name.endswith("_by_position"):
                summed[field.name] = tuple(np.sum(values, axis=0, dtype=int).tolist())
            else:
                summed[field.name] = None if None in values else sum(values)
        return cls(**summed)

    @classmethod
    def total(cls, rows: Sequence["Statistics"]) -> "Statistics":
        """Sums over rows of one batch, with the maxima of `global_chunks` and `batch_windows`."""
        shared = ("global_chunks", "batch_windows")
        most = {name: max(vars(row)[name] for row in rows) for name in shared}
        return dataclasses.replace(cls.sum(rows), **most)

    def to_dict(self) -> dict:
        """Returns all figures and their ratios as a dictionary that can be written as JSON."""
        return dataclasses.asdict(self) | {
            "acceptance": _ratio(self.accepted, self.drafted),
            "acceptance_by_position": [
                _ratio(a, d)
                for a, d in zip(self.accepted_by_position, self.drafted_by_position, strict=True)
            ],
            "accepted_by_position": list(self.accepted_by_position),
            "drafted_by_position": list(self.drafted_by_position),
            "bytes_per_round": _ratio(self.bytes, self.rounds),
            "bytes_per_patch": _ratio(self.bytes, self.patches),
            "bytes_per_second": _ratio(self.bytes, self.seconds or 0),
        }


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


@dataclasses.dataclass(frozen=True)
class Result:
    """The continuation of one prompt.

    Attributes:
      index: index of the prompt among those given.
      bytes: the continuation, without EOS and stop string.
      stop: why it ended: "eos", "stop", "length", or "constraint", if that lets nothing follow; or
        "not-finite", if the model's next logits are NaN or infinite. Nothing is written from such
        logits: `bytes` ends before them.
      stats: counts and costs of this row.
      log_probs: the model's log-probability of each byte of `bytes`, among all bytes and EOS and
        before temperature and truncation, in nats; None if not requested.
      origins: provenance of each byte of `bytes`; None if not requested.
    """

    index: int
    bytes: bytes
    stop: str
    stats: Statistics
    log_probs: np.ndarray | None = None
    origins: Origins | None = None

    @property
    def text(self) -> str:
        """The continuation decoded as UTF-8, with U+FFFD in place of invalid bytes."""
        return self.bytes.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class Output:
    """The output of `generate`: one result per prompt, in order.

    Attributes:
      results: the continuations.
      stats: totals over the batch, with its wall-clock times.
      lossless: whether the method preserves the model's distribution.
    """

    results: list[Result]
    stats: Statistics
    lossless: bool

    @property
    def bytes(self) -> list[bytes]:
        """The continuations as bytes."""
        return [result.bytes for result in self.results]

    @property
    def text(self) -> list[str]:
        """The continuations as text; see `Result.text`."""
        return [result.text for result in self.results]
