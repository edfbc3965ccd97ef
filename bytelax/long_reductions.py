"""Compiler options with which reductions over many rows are correct on every version of XLA."""

import jax


def compiler_options() -> dict[str, str] | None:
    """Compiler options for programs that score or train on tens of thousands of bytes at once.

    XLA:CPU delegates reductions to YNNPACK. In jaxlib 0.10.2 its results are wrong for some
    programs with more than 32,768 rows (jax-ml/jax#39103, fixed in 0.12). In tests of bytelax's
    models with YNNPACK, logits were correct up to 76,800 positions, and losses and gradients up to
    77,400 targets. Turning it off makes correctness independent of the program.
    """
    affected = jax.default_backend() == "cpu" and jax.__version_info__ < (0, 12)
    return {"xla_cpu_experimental_ynn_fusion_type": ""} if affected else None
