"""Sums over many rows that are right on every version of XLA."""

import jax


def compiler_options() -> dict[str, str] | None:
    """What programs that score or train on tens of thousands of bytes at once are compiled with.

    XLA:CPU gives reductions to YNNPACK, which returns wrong ones beyond 32,768 rows for some
    programs in jaxlib 0.10.2 (jax-ml/jax#39103; right in 0.12). With YNNPACK too, logits of
    bytelax's models were right up to 76,800 positions, losses and gradients up to 77,400 targets;
    without it nothing depends on which programs those are.
    """
    affected = jax.default_backend() == "cpu" and jax.__version_info__ < (0, 12)
    return {"xla_cpu_experimental_ynn_fusion_type": ""} if affected else None
