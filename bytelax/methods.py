"""Builds the method of a request: by its name, by its options, or as it is given."""

import dataclasses
import reprlib
import warnings
from pathlib import Path
from typing import Any

import jax

from bytelax.decode.acceptance import Acceptance, Lossless
from bytelax.decode.drafter import Empty
from bytelax.decode.method import Method
from bytelax.loading import load
from bytelax.model import Model
from bytelax.options import Ar, DraftModel, Options, Tuned, named
from bytelax.systems import tuned
from bytelax.targets.module_target import ModuleTarget


def build(
    method: str | Options | Method,
    model: Model,
    /,
    *,
    rows: int = 1,
    accept: Acceptance | Lossless | None = None,
    window: int | None = None,
    **options: Any,
) -> tuple[Method, Any]:
    """Builds a method for a model; returns it with the parameters of its drafter.

    Args:
      method: a name, the options of a system, or a `Method`, which is checked and returned.
      model: the target model. A draft model is put on the same mesh, and loaded if given as a path.
      rows: size of the batch, of 1, 2, 4, 8, 16, 24, ..., that a setting was tuned for.
      accept: acceptance rule to use in place of the method's own.
      window: number of bytes to pad every verified window to; None leaves it as it is.
      **options: options of a method that is given by name; None selects the default.

    Raises:
      ValueError: there is no such method, it does not take an option, or an option is missing or
        out of range.
    """
    params: Any = ()
    if isinstance(method, Options | Method) and options:
        raise ValueError(f"{', '.join(options)}: only methods given by name take options")
    if isinstance(method, Method):
        module = method.target.module if isinstance(method.target, ModuleTarget) else None
        if module not in (None, model.device_shard):
            raise ValueError("this Method was built for another model")
        built = method
    else:
        chosen = method if isinstance(method, Options) else named(method, **options)
        if isinstance(chosen, Tuned):
            chosen = _tuned(model, rows)
        if isinstance(chosen, DraftModel):
            small = _loaded(chosen.draft_model, model)
            chosen, params = dataclasses.replace(chosen, draft_model=small), small.device_params
        built = chosen.build(model)
    if window is not None:
        built = dataclasses.replace(built, window=window)
    if accept is not None:
        built = dataclasses.replace(built, accept=accept)
        if type(built.drafter) is Empty:
            raise ValueError("accept judges drafts, and this method drafts nothing")
    return built, params


def _tuned(model: Model, rows: int) -> Options:
    """Returns what `bytelax tune` found fastest; plain decoding, with a warning, if nothing."""
    if jax.process_count() > 1:
        raise ValueError(
            "'tuned' is read from the cache of one machine, and all processes must run the same "
            "method: give the one that `bytelax tune` named"
        )
    found = tuned.read(model, rows)
    if found is None or found.method == Ar.name:
        nothing = "found nothing faster" if found else f"has not run with --batch {rows}"
        message = f"plain decoding: `bytelax tune` {nothing} for this model on this machine"
        warnings.warn(message, stacklevel=2)
        return Ar()
    options = dict(found.options)
    if small := options.get("draft_model"):
        options["draft_model"] = load(small, **found.draft_loading)
    return named(found.method, **options)


def _loaded(small: Any, model: Model) -> Model:
    """Returns a draft model, loaded if it is given by name, on the mesh of the target model."""
    small = load(small) if isinstance(small, str | Path) else small
    if not isinstance(small, Model):
        raise ValueError(f"draft_model is a model or names one, got {reprlib.repr(small)}")
    return small if model.mesh is None else small.on(model.mesh)
