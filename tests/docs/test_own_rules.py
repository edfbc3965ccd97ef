"""What `certify` of docs/own_rules.md accepts and refuses."""

import jax.numpy as jnp
import pytest

from bytelax.decode import at_draft, drafted_probs, follow, happens, prefix, residual
from tests.helpers import pages

PAGE = pages.ROOT / "docs" / "own_rules.md"


@pytest.fixture(scope="module")
def certify():
    rules = pages.blocks(PAGE, "python")[:3]
    assert "def certify(rule)" in rules[-1]
    return pages.run(rules, PAGE)["certify"]


def rule(*, ratio=lambda p, q: p / q, q_of=drafted_probs, kept=happens, number=1):
    """Speculative sampling, with a part replaced."""

    def accept(draft, log_probs, uniforms):
        p, q = (jnp.exp(at_draft(x, draft)) for x in (log_probs[:, :-1], draft.log_probs))
        count = prefix(draft, kept(ratio(p, q), uniforms[:, 0, :-1]))
        left = residual(jnp.exp(log_probs), q_of(draft))
        return follow(draft, count, left, uniforms[:, number])

    return accept


def beyond_the_draft(draft):
    return jnp.pad(jnp.exp(draft.log_probs), ((0, 0), (0, 1), (0, 0)))


def at_the_bonus(draft):
    return drafted_probs(draft).at[:, -1].set(drafted_probs(draft)[:, -2])


NOT_LOSSLESS = "the method is not lossless"
WRONG = {
    "keeps too much": (rule(ratio=lambda p, q: 1.2 * p / q), NOT_LOSSLESS),
    "keeps too much later": (
        rule(ratio=lambda p, q: (p / q).at[:, 1:].multiply(1.3)),
        NOT_LOSSLESS,
    ),
    "takes q for 1": (rule(ratio=lambda p, q: p), NOT_LOSSLESS),
    "all of p after a refusal": (rule(q_of=lambda draft: 0 * drafted_probs(draft)), NOT_LOSSLESS),
    "a residual behind the draft": (rule(q_of=beyond_the_draft), "another padding"),
    "a residual at the bonus byte": (rule(q_of=at_the_bonus), NOT_LOSSLESS),
    "one number twice": (rule(number=0), NOT_LOSSLESS),
    "compares by itself": (rule(kept=lambda p, u: u < p), "used otherwise than in"),
    "keeps nothing": (
        rule(ratio=lambda p, q: 0 * p, q_of=lambda draft: 0 * drafted_probs(draft)),
        "kept no drafted byte",
    ),
}


MORE = {"keeps too much later", "all of p after a refusal"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.exhaustive if name in MORE else ()) for name in WRONG],
)
def test_wrong_rules_are_refused(certify, name):
    accept, says = WRONG[name]
    with pytest.raises(AssertionError, match=says):
        certify(accept)


@pytest.mark.slow
def test_a_right_rule_is_certified(certify):
    certify(rule())
