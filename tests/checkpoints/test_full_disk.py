"""A model that does not fit on the disk: one line, and nothing is left of it."""

import os
import shutil
import subprocess
import sys

import pytest

OWN_MOUNTS = ["unshare", "--map-root-user", "--mount"]
WRITE = """
import os, sys
from tests.helpers.random_models import META, random_params
from bytelax import checkpoints

for layout in ("orbax", "huggingface"):
    try:
        checkpoints.write(f"{sys.argv[1]}/model", META, random_params(META), layout=layout)
    except (checkpoints.CheckpointError, OSError) as error:
        print(layout, str(error).splitlines(), os.listdir(sys.argv[1]), sep="|")
"""


def on_small_disk(directory, *command):
    """Runs a command that alone sees a file system of 64 kB in a directory."""
    if not shutil.which("unshare") or subprocess.run([*OWN_MOUNTS, "true"], check=False).returncode:
        pytest.skip("this user may mount nothing")
    mount = 'mount -t tmpfs -o size=64k none "$0" && "$@"; code=$?; ls -A "$0"; exit $code'
    return subprocess.run(
        [*OWN_MOUNTS, "bash", "-c", mount, str(directory), sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.slow  # 10 s
def test_convert(tmp_path):
    """It printed 230 lines before its own, and then that memory was short."""
    target = str(tmp_path / "model")
    done = on_small_disk(
        tmp_path, "-m", "bytelax.cli", "convert", "--model", "tiny-lm", "--out", target
    )
    assert done.returncode == 2
    assert done.stderr == f"bytelax: {tmp_path} cannot be written: No space left on device\n"
    assert done.stdout == ""  # neither a word nor a file


@pytest.mark.slow  # 15 s
def test_every_layout(tmp_path):
    done = on_small_disk(tmp_path, "-c", WRITE, str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split("|")[0] for line in lines] == ["orbax", "huggingface"]
    assert all("No space left on device" in line and line.endswith("|[]") for line in lines)
