"""Compiles the processor's kernels into the package, where there is a C++ compiler.

    python kernels/build_native.py

The sources are compiled once for each instruction set, and `bytelax_kernels.native` chooses among
them when the library is loaded. They need the headers in jaxlib and nothing else. Nothing is done
if the library is up to date. It serves the package beside this script, which `pip install -e .`
makes that of an environment.
"""

import importlib.machinery
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import jax.ffi
from bytelax_kernels import native

PACKAGE = pathlib.Path(__file__).parent / "bytelax_kernels"
LIBRARY = PACKAGE / "libbytelax.so"
SOURCES = ("append_attention/cpu.cc", "dense/cpu.cc", "verify_attention/cpu.cc")
# Flags by machine and instruction set; the names are those that `native` asks for.
INSTRUCTIONS: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        "amx": ["-mavx512f", "-mfma", "-mamx-tile", "-mamx-bf16"],
        "avx512bf16": ["-mavx512f", "-mfma", "-mavx512bf16"],
        "avx512": ["-mavx512f", "-mfma"],
        "avx2": ["-mavx2", "-mfma"],
    },
    "aarch64": {"neon": []},
}
INSTRUCTIONS |= {"AMD64": INSTRUCTIONS["x86_64"], "arm64": INSTRUCTIONS["aarch64"]}


def compiler() -> str | None:
    """The C++ compiler, or None if there is none for this machine."""
    if platform.machine() not in INSTRUCTIONS or sys.platform == "win32":
        return None
    return shutil.which(os.environ.get("CXX", "c++"))


def build(found: str) -> None:
    """Compiles the library.

    Args:
      found: the compiler.

    Raises:
      subprocess.CalledProcessError: it fails.
    """
    flags = ["-O3", "-std=c++17", "-fPIC", "-ffp-contract=fast", "-isystem", jax.ffi.include_dir()]
    flags += [f'-DSOURCES="{native.sources()}"']
    with tempfile.TemporaryDirectory() as scratch:
        running: dict[str, subprocess.Popen] = {}
        for source in SOURCES:
            for name, more in INSTRUCTIONS[platform.machine()].items():
                if not _knows(found, more):
                    continue
                target = f"{scratch}/{len(running)}.o"
                command = [found, *flags, *more, f"-DISA={name}", "-c", str(PACKAGE / source)]
                running[target] = subprocess.Popen([*command, "-o", target])
        for process in running.values():
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)
        # The linker takes what they share from the first: it has to run on every processor.
        objects = list(reversed(running))
        linked = f"{scratch}/{LIBRARY.name}"
        subprocess.run([found, "-shared", *objects, "-o", linked], check=True)
        shutil.move(linked, LIBRARY)


def _knows(found: str, flags: list[str]) -> bool:
    """Whether a compiler knows the instructions; older ones do not know tiles."""
    command = [found, *flags, "-E", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True).returncode == 0


def current() -> bool:
    """Whether the library is of these sources and this script, and loads."""
    written = pathlib.Path(__file__).stat().st_mtime
    return native.why_not() is None and LIBRARY.stat().st_mtime >= written


if __name__ == "__main__":
    if os.environ.get("BYTELAX_NATIVE") == "0" or current():
        pass
    elif found := compiler():
        print("compiling the kernels for processors, for a minute or more", flush=True)
        build(found)
        print(LIBRARY)
        installed = importlib.machinery.PathFinder.find_spec(PACKAGE.name, sys.path[1:])
        if installed is None or pathlib.Path(installed.origin or "").parent != PACKAGE:
            sys.exit(f"this Python does not import {PACKAGE}: pip install -e {PACKAGE.parents[1]}")
    else:
        print("no C++ compiler for this machine: XLA runs everything")
