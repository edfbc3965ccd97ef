"""Trained models that lie in a directory: which there are, and which they are."""

import hashlib
import pathlib


def model_of(run: pathlib.Path) -> pathlib.Path | None:
    """The model of a run; None before it has one. A directory may hold the model alone."""
    return next((each for each in (run / "model", run) if (each / "config.json").exists()), None)


def digest(directory: pathlib.Path) -> str:
    """The first 12 hexadecimal digits of SHA-256 of all files below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    parts = (path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes()
             for path in paths)  # fmt: skip
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
