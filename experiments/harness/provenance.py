"""What a figure was measured with: code, compiler options, weights and processor.

Rows of other code, options or weights are not kept beside new ones, and a page says what its rows
were measured with.
"""

import functools
import hashlib
import json
import pathlib
import platform
import re
from typing import Any

import bytelax_kernels
from bytelax_kernels import native

import bytelax
from bytelax.compiling import compiler_options

_ASSETS = pathlib.Path(bytelax.__file__).parent / "assets"
_PACKAGES = tuple(pathlib.Path(package.__file__).parent for package in (bytelax, bytelax_kernels))
_SOURCES = (".py", ".cc", ".h")
OLD = "**Old figures: measured before pages noted the code that they rest on.**"


def of(settings: Any) -> dict:
    """What is running now.

    Args:
      settings: of a study, as JSON or nearly; the bundled models that it names are part of the
        result.
    """
    named = json.dumps(settings, default=str)
    return {
        "code": code(),
        "options": compiler_options(),
        "weights": {
            path.parent.name: digest(path.read_bytes())
            for path in sorted(_ASSETS.glob("*/model.safetensors"))
            if f'"{path.parent.name}"' in named
        },
    }


@functools.cache
def code() -> str:
    """Digest of the source files of `bytelax` and its kernels."""
    files = sorted(
        (path.relative_to(root.parent).as_posix(), path)
        for root in _PACKAGES
        for path in root.rglob("*")
        if path.suffix in _SOURCES
    )
    parts = (name.encode() + b"\0" + path.read_bytes() for name, path in files)
    return digest(b"\0".join(parts))


def files(directory: pathlib.Path) -> str:
    """Digest of all files below a directory, as of a model that is not bundled."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    parts = (path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes()
             for path in paths)  # fmt: skip
    return digest(b"\0".join(parts))


def digest(content: bytes) -> str:
    """The first 12 hexadecimal digits of SHA-256."""
    return hashlib.sha256(content).hexdigest()[:12]


@functools.cache
def processor() -> str:
    """The model of the processor and the vector instructions that decide its products."""
    try:
        told = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    model = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    flags = set(re.findall(r"\b(?:avx512f|avx2|amx_tile|asimd)\b", told))
    widest = next((x for x in ("amx_tile", "avx512f", "avx2", "asimd") if x in flags), None)
    name = model[1].strip() if model else platform.machine()
    return f"{name} ({widest})" if widest else name


def kernels() -> str:
    """Whether processors run the compiled kernels."""
    return "compiled kernels" if native.available() else "XLA's kernels"


def counted(report: dict) -> bool:
    """Whether a report times nothing, so that each row says what it was measured with."""
    return any("ran" in row for row in report.get("rows", ()))


def each(report: dict) -> list[dict]:
    """What holds `machine`, `jax` and `ran`: the rows of a report, or all of it for all rows."""
    return [row for row in report["rows"] if "ran" in row] if counted(report) else [report]


def marked(page: str, report: dict) -> str:
    """A study's page with a line that says what its rows were measured with.

    Args:
      page: Markdown that begins with a title.
      report: of the study. One without a digest is older than that line.
    """
    title, _, rest = page.partition("\n")
    codes = dict.fromkeys(own["ran"]["code"] for own in each(report) if "ran" in own)
    if not codes:
        return page if OLD in page else f"{title}\n\n{OLD}\n{rest}"
    return f"{page.rstrip()}\n\nCode {', '.join(codes)}.\n"
