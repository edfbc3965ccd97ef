"""Compiler options with which a sum over the same numbers is the same in every program."""

import functools

import jax

_WITHOUT_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": ""}


@functools.cache
def compiler_options() -> dict[str, str] | None:
    """Compiler options for programs that decode, score or train; None where there are none to set.

    XLA:CPU delegates products and reductions to YNNPACK, with two consequences:

    - The order of a sum depends on what else a program returns: with jaxlib 0.10.2 and 0.12 the
      last layer of 32 prompts differs in its last bits if its states are returned, too. A method
      that drafts from these states would differ from plain decoding.
    - In jaxlib 0.10.2 the results of some programs with more than 32,768 rows are wrong
      (jax-ml/jax#39103, fixed in 0.12). In tests of bytelax's models, logits were correct up to
      76,800 positions, and losses and gradients up to 77,400 targets.

    These options leave it out. `experiments/speed/windows` measures what that costs in decoding.
    """
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda: 0, compiler_options=_WITHOUT_YNNPACK)()
    except jax.errors.JaxRuntimeError:
        return None  # a version of XLA without this option
    return _WITHOUT_YNNPACK
