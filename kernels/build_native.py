"""Compiles the kernels for processors and NVIDIA GPUs into the package, where there are compilers.

    python kernels/build_native.py

The sources are compiled once for each instruction set, and `bytelax_kernels.native` chooses among
them when the library is loaded. They need the headers in jaxlib and nothing else. Nothing is done
if the library is up to date. It serves the package next to this script, which `pip install -e .`
makes that of an environment. `build_hook.py` compiles the same into a wheel.
"""

import concurrent.futures
import functools
import importlib.machinery
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

from bytelax_kernels import cuda, native

PACKAGE = pathlib.Path(__file__).parent / "bytelax_kernels"
LIBRARY = PACKAGE / "libbytelax.so"
SOURCES = ("append_attention/cpu.cc", "dense/cpu.cc", "verify_attention/cpu.cc")
# Flags by machine and instruction set; the names are those of `native`.
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


def build(found: str, library: pathlib.Path = LIBRARY) -> None:
    """Compiles the library.

    Args:
      found: the compiler.
      library: the file to write.

    Raises:
      subprocess.CalledProcessError: it fails.
    """
    flags = ["-O3", "-std=c++17", "-fPIC", "-ffp-contract=fast", "-isystem", str(native.headers())]
    flags += [f'-DSOURCES="{native.sources(native.SOURCES)}"']
    with tempfile.TemporaryDirectory() as scratch:
        commands: dict[str, list[str]] = {}  # by the file that each writes
        for source in SOURCES:
            for name, more in INSTRUCTIONS[platform.machine()].items():
                if _knows(found, more):
                    target, own = f"{scratch}/{len(commands)}.o", [*more, f"-DISA={name}"]
                    code = str(PACKAGE / source)
                    commands[target] = [found, *flags, *own, "-c", code, "-o", target]
        # No more at once than there are processors: each takes hundreds of megabytes.
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(functools.partial(subprocess.run, check=True), commands.values()))
        # The linker takes what they share from the first: it has to run on every processor.
        objects = list(reversed(commands))
        linked = f"{scratch}/{library.name}"
        subprocess.run([found, "-shared", *objects, "-o", linked], check=True)
        shutil.move(linked, library)


def _knows(found: str, flags: list[str]) -> bool:
    """Whether a compiler knows the instructions; older ones do not know tiles."""
    command = [found, *flags, "-E", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True).returncode == 0


def nvcc() -> str | None:
    """The compiler for NVIDIA GPUs: on the path, or of the wheel that `jax[cuda13]` needs."""
    if found := shutil.which(os.environ.get("NVCC", "nvcc")):
        return found
    wheels = importlib.util.find_spec("nvidia")
    places = wheels.submodule_search_locations if wheels else []
    inside = (path for place in places or [] for path in pathlib.Path(place).glob("cu*/bin/nvcc"))
    return next(map(str, inside), None)


def build_for_gpus(found: str, library: pathlib.Path = cuda.LIBRARY) -> None:
    """Compiles the library for GPUs: for Hopper and Blackwell.

    An `nvcc` before CUDA 12.8 does not know Blackwell, and leaves PTX for its driver to compile.

    Args:
      found: `nvcc`.
      library: the file to write.

    Raises:
      subprocess.CalledProcessError: it fails.
    """
    sources = [str(PACKAGE / kernel / "gpu.cu") for kernel in cuda.FOLDERS]
    known = subprocess.run([found, "--list-gpu-code"], capture_output=True, text=True).stdout
    after = ["-gencode", "arch=compute_100,code=sm_100"] if "sm_100" in known.split() else []
    with tempfile.TemporaryDirectory() as scratch:
        linked = f"{scratch}/{library.name}"
        subprocess.run(
            [
                found, "-O3", "-std=c++17", "-shared", "--threads", "0", "-Xcompiler", "-fPIC",
                "-gencode", "arch=compute_90,code=[sm_90,compute_90]", *after,
                "-diag-suppress", "1650",
                f'-DSOURCES="{native.sources(cuda.SOURCES)}"', "-isystem", str(native.headers()),
                *sources, "-o", linked,
            ],
            check=True,
        )  # fmt: skip
        shutil.move(linked, library)


def current(library: pathlib.Path, kinds: tuple[str, ...]) -> bool:
    """Whether a library is of these sources and this script, and loads."""
    try:
        native.opened(library, kinds, "")
    except native.Missing:
        return False
    return library.stat().st_mtime >= pathlib.Path(__file__).stat().st_mtime


def build_all(folder: pathlib.Path = PACKAGE) -> list[pathlib.Path]:
    """Compiles what a folder lacks, or has of other sources; returns the files that it wrote."""
    own, for_gpus = folder / LIBRARY.name, folder / cuda.LIBRARY.name
    built = []
    if not current(own, native.SOURCES):
        if found := compiler():
            print("compiling the kernels for processors, for a minute or more", flush=True)
            build(found, own)
            built.append(own)
        else:
            print("no C++ compiler for this machine: XLA runs everything")
    if not current(for_gpus, cuda.SOURCES) and (found := nvcc()):
        print("compiling the kernels for NVIDIA GPUs, for half a minute", flush=True)
        build_for_gpus(found, for_gpus)
        built.append(for_gpus)
    return built


def main() -> str | None:
    """Builds what is not up to date; returns what is wrong."""
    if os.environ.get("BYTELAX_NATIVE") == "0":
        return None
    built = build_all()
    print(*built, sep="\n", end="\n" if built else "")
    installed = importlib.machinery.PathFinder.find_spec(PACKAGE.name, sys.path[1:])
    if built and (installed is None or pathlib.Path(installed.origin or "").parent != PACKAGE):
        return f"this Python does not import {PACKAGE}: pip install -e {PACKAGE.parents[1]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
