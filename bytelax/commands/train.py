"""`bytelax train entropy | byte-lm | heads | blt | blt-d`: trains a model, or resumes a run."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bytelax.commands import train_presets
from bytelax.commands.train_flags import (
    KINDS,
    NOT_RECORDED,
    BlockDiffusionBLT,
    ByteTransformer,
    Entropy,
    HeadsOf,
    PlainBLT,
    Run,
)
from bytelax.training.source import Source

if TYPE_CHECKING:
    import cattrs

Kind = (
    Annotated[Entropy, tyro.conf.subcommand("entropy")]
    | Annotated[ByteTransformer, tyro.conf.subcommand("byte-lm")]
    | Annotated[HeadsOf, tyro.conf.subcommand("heads")]
    | Annotated[PlainBLT, tyro.conf.subcommand("blt")]
    | Annotated[BlockDiffusionBLT, tyro.conf.subcommand("blt-d")]
)


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a model, or resume a training run."""

    kind: Annotated[Kind, tyro.conf.arg(name="")]


def default(args: Sequence[str]) -> Any:
    """The default values for tyro: those of `--preset` and of the file given by `--config`.

    Args:
      args: the arguments behind `bytelax train`.

    Raises:
      ConfigError: the file cannot be used; the message is one line that says why.
      ValueError: the preset is unknown, or not one of this kind of run.
    """
    path, preset, out = (_value_of(flag, args) for flag in ("--config", "--preset", "--out"))
    if not args or args[0] not in KINDS or not (path or preset):
        return tyro.MISSING_NONPROP
    from bytelax import config as plain

    kind = args[0]
    if not out and not {"-h", "--help"} & set(args):
        raise ValueError("--out is required: the directory of the run")
    known = KINDS[kind](out=pathlib.Path(out or "OUT"), **train_presets.of(kind, preset))
    if not path:
        return Train(known)
    fields = plain.read_toml(pathlib.Path(path))
    if fields.pop("kind", kind) != kind:
        raise ValueError(f"{path} is the config of another kind of model than {kind}")
    for name in fields.keys() & NOT_RECORDED:
        raise ValueError(f"{path}: {name} is a flag, not a field of the file")
    merged = plain.merge(plain.to_fields(known, by=_toml()), fields)
    return Train(plain.from_fields(KINDS[kind], merged, path, by=_toml()))


def to_fields(run: Run) -> dict:
    """Converts a run to the fields that `config.toml` records."""
    from bytelax import config as plain

    kind = next(name for name, cls in KINDS.items() if type(run) is cls)
    fields = plain.to_fields(run, by=_toml())
    # Recorded as a number, because the default depends on the number of steps, which may change.
    fields["optimizer"]["warmup"] = run.optimizer.warmup_steps
    return {"kind": kind} | {name: x for name, x in fields.items() if name not in NOT_RECORDED}


@functools.cache
def _toml() -> "cattrs.Converter":
    """The converter for the config of a run; sources are written as on the command line."""
    from bytelax import config as plain

    made = plain.toml_converter()
    made.register_structure_hook(Source, lambda x, _: Source.parse(made.structure(x, str)))
    made.register_unstructure_hook(Source, str)
    made.register_structure_hook(pathlib.Path, lambda x, _: pathlib.Path(x))
    return made


def _value_of(flag: str, args: Sequence[str]) -> str:
    """The value of a flag, after a space or an equals sign; empty if the flag is not given."""
    values = [
        following if argument == flag else argument.removeprefix(f"{flag}=")
        for argument, following in zip(args, [*args[1:], ""], strict=True)
        if argument == flag or argument.startswith(f"{flag}=")
    ]
    return values[-1] if values else ""
