"""What workers in tests offer."""

from polydomo import Call


def answer(call: Call) -> Call:
    """The requests received."""
    return call
