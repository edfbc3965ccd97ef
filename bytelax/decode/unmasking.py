"""Which masked bytes of a block to fill in from one pass of the decoder.

Rules of Fast BLT (arXiv 2605.08044, section 2.2) and of EB-Sampler (arXiv 2505.24857), carried out
by `bytelax_kernels.unmask`. They judge the model's own laws, before temperature and truncation:
greedy decoding would make every byte look certain.
"""

from bytelax_kernels.unmask import Rule

ONE_STEP = Rule("all")  # from the first pass


def confidence(alpha: float = 0.7) -> Rule:
    """Every byte whose likeliest value has a probability above alpha, or the single surest."""
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha is a probability, 0 <= alpha < 1, got {alpha}")
    return Rule("confidence", alpha)


def entropy_bound(gamma: float = 1.0, but_one: bool = False) -> Rule:
    """The most certain bytes whose entropies add up to at most gamma, or the single most certain.

    Args:
      gamma: nats.
      but_one: leave out the largest of the entropies, which is EB-Sampler's bound on what filling
        bytes independently can lose. Fast BLT's wording is the sum of all.
    """
    if not 0 <= gamma < float("inf"):
        raise ValueError(f"gamma is a number of nats, at least 0, got {gamma}")
    return Rule("entropy-but-one" if but_one else "entropy", gamma)
