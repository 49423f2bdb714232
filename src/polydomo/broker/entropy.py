"""The source of random bytes, provided by the owner of the broker."""

from polydomo.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Entropy:
    def take(self, size: int) -> bytes:
        raise NotImplementedError
