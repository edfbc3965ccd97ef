"""Records a few training steps with JAX's profiler."""

import pathlib
from typing import Any

import jax


class Profile:
    """Records the steps after the first one, which would show the transfer of the state.

    Args:
      directory: where to write; TensorBoard and XProf read it. Each process writes its own part.
      steps: number of steps to record; 0 records none.
    """

    def __init__(self, directory: pathlib.Path, steps: int):
        self._directory, self._steps = directory, steps
        self._taken, self._recording = 0, False

    def after_step(self, result: Any) -> None:
        """Counts a step, given its result, and waits for it where the recording begins or ends."""
        self._taken += 1
        if self._steps and self._taken == 1:
            jax.block_until_ready(result)
            jax.profiler.start_trace(self._directory)
            self._recording = True
        elif self._recording and self._taken > self._steps:
            jax.block_until_ready(result)
            self.close()

    def close(self) -> None:
        """Writes what has been recorded."""
        if self._recording:
            jax.profiler.stop_trace()
        self._recording = False
