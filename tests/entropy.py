"""Randomness for tests: the same in each run."""

from polydomo.broker.entropy import Entropy


class Counting(Entropy):
    """Bytes that differ each time, and that can be predicted."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")


class Zeros(Entropy):
    def take(self, size: int) -> bytes:
        return bytes(size)
