"""Cases of a parametrized test that only some runs try."""

import pytest


def slow(*case):
    """A case that CI tries."""
    return pytest.param(*case, marks=pytest.mark.slow)


def exhaustive(*case):
    """A case that is tried before a release."""
    return pytest.param(*case, marks=pytest.mark.exhaustive)
