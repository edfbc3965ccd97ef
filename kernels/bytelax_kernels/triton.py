"""The Triton backend of Pallas, which JAX has deprecated in 0.11 and will remove.

It lowers the small kernels of GPUs. Where it is gone, XLA runs what they replace.
"""

import importlib.util
import warnings
from collections.abc import Callable

from bytelax_kernels import cards
from bytelax_kernels.dispatch import Kernel, inference_only

_DEPRECATED = "The Pallas Triton backend is deprecated"


def kernel(load: Callable[[], tuple[Callable, Callable]]) -> Kernel:
    """The kernel of a module with `takes` and `run`; one that takes nothing where it cannot run.

    Args:
      load: function that imports the module and returns its `takes` and its `run`.
    """
    if importlib.util.find_spec("jax.experimental.pallas.triton") is None:
        return Kernel(lambda inputs: False, lambda inputs: inputs)
    warnings.filterwarnings("ignore", message=_DEPRECATED, category=DeprecationWarning)
    takes, run = load()
    return Kernel(lambda inputs: cards.are(cards.LARGE) and takes(inputs), inference_only(run))
