"""The exact distribution of what an acceptance rule emits in one round."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bytelax import vocab
from bytelax.compiling import own_settings
from bytelax.decode import Acceptance, Drafter, Method, Params
from bytelax.testing.chance import Chance
from bytelax.testing.exact_law import Law, one_round, started
from bytelax.testing.tables import TableDrafter, TableTarget


@own_settings()
def enumerate_rule(
    rule: Acceptance,
    p: Float[np.ndarray, "N V V V"],
    q: Float[np.ndarray, "N V V V"],
    *,
    drafter: Drafter = TableDrafter(2),  # noqa: B008 (a frozen value)
    window: int | None = None,
    rows: int = 512,
) -> list[Law]:
    """Computes the exact distribution of the values that a rule emits in one round.

    Every draft and every random number is integrated out. The model knows V values, and the next
    one depends on the last two. The round begins behind two values 0.

    Args:
      rule: the acceptance rule.
      p: N tables of the model: p[n, x, y] is the distribution of the value that follows x and y.
      q: N tables of the drafter.
      drafter: proposes with the table q as its parameters, in logits of ids.
      window: W, as in `Method`; None is the drafter's own.
      rows: batch size of the compiled round.

    Returns:
      For each n the probability of every tuple of 1 to W values that the round may emit.
    """
    many, values = p.shape[:2]
    method = Method(TableTarget(), drafter, rule, window)
    # Table n has byte values of its own, and nothing leads from one table to another.
    tables = Params(_logits(p), _logits(q))
    first = [vocab.OFFSET + n * values for n in range(many)]
    begin = started(
        method,
        tables,
        [[vocab.BOS, x, x] for x in first],
        length=3 + method.window,
        budget=method.window,
        rows=rows,
        temperature=1.0,
    )
    found: list[Law] = [{} for _ in first]
    for (texts, *_), _, row, weight in Chance(one_round(method, tables), rows).outcomes(begin):
        for text, n, share in zip(texts[:, 3:], row, weight, strict=True):
            emitted = tuple((text[text >= 0] - first[n]).tolist())
            found[n][emitted] = found[n].get(emitted, 0.0) + share
    return found


def _logits(tables):
    many, values = tables.shape[:2]
    size = vocab.OFFSET + many * values
    logits = np.zeros((size, size, size), np.float32)
    for n, one in enumerate(tables):
        own = slice(vocab.OFFSET + n * values, vocab.OFFSET + (n + 1) * values)
        logits[own, own] = -np.inf
        with np.errstate(divide="ignore"):
            logits[own, own, own] = np.log(one)
    return jnp.asarray(logits)
