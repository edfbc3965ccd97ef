"""Compiles the kernels into a wheel, or into the checkout of an editable install.

Hatch calls it. A hook rather than scikit-build-core: which files are compiled, for which
instructions and by which flags is in `build_native.py`, which `make` runs too, and CMake would be a
second way of saying it. Without a compiler, or where it fails, the wheel is pure, and the first
`generate` warns of it. `BYTELAX_NATIVE=0` leaves the kernels out.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import build_native


class Kernels(BuildHookInterface):
    """Adds the library to what is built."""

    def dependencies(self) -> list[str]:
        """The oldest jaxlib that bytelax supports: what its headers compile runs in later ones."""
        (oldest,) = (x for x in self.metadata.core.dependencies if x.startswith("jax>="))
        return [oldest.replace("jax>=", "jaxlib==")] if _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, and names the platform that the wheel is for."""
        if not _wanted():
            return
        self._scratch = tempfile.TemporaryDirectory()  # until the wheel is written
        editable = version == "editable"
        folder = build_native.PACKAGE if editable else pathlib.Path(self._scratch.name)
        try:
            build_native.build_all(folder)
        except subprocess.CalledProcessError as error:
            self.app.display_warning(f"without some compiled kernels: {error}")
        built = [] if editable else list(folder.iterdir())
        for library in built:
            build_data["force_include"][str(library)] = f"bytelax_kernels/{library.name}"
        if built:  # one for all Pythons, because ctypes loads it
            platform = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
            build_data["tag"], build_data["pure_python"] = f"py3-none-{platform}", False


def _wanted() -> bool:
    return os.environ.get("BYTELAX_NATIVE") != "0" and build_native.compiler() is not None
