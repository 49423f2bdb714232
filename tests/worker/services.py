"""What workers in tests offer."""

from polydomo import Call


def answer(call: Call) -> Call:
    """What was asked."""
    return call
