"""What the broker remembers of its bridges; ``crossing`` changes it."""

from polydomo.protocols.bridge import Path
from polydomo.protocols.verbs import Service, Worker


class Bridges:
    """What the crossing remembers."""

    def __init__(self) -> None:
        self.identity = b""
        self.told: dict[Worker, dict[bytes, Path]] = {}  # bridge -> what it was told is offered here
        self.learned: dict[Worker, dict[bytes, Service]] = {}  # bridge -> what it offers
        self.missed: dict[
            tuple[Worker, bytes], Path
        ] = {}  # what a bridge offers, and there was no room for another service
        self.waiting: dict[Service, None] = {}  # no bridge that could take its next request had room for it
        self.relayed: dict[
            tuple[bytes, bytes], int
        ] = {}  # origin and topic -> the last publication; the longest ago first
