"""Jobs of ordinary requests whose clients disconnected before they got the result, until an equal request claims them."""


class Unclaimed:
    def __init__(self) -> None:
        self._by_digest: dict[bytes, dict[str, float]] = {}  # digest -> job -> when it ended; 0 while it is open

    def add(self, digest: bytes, id: str, ended: float) -> None:
        """``ended`` is 0 while the job is open."""
        self._by_digest.setdefault(digest, {})[id] = ended

    def claim(self, digest: bytes, oldest: float) -> str:
        """The job of an equal request; "" if there is none that is open or ended after ``oldest``. Each can be claimed once."""
        waiting = self._by_digest.get(digest)
        if waiting is None:
            return ""
        found = ""
        for id, ended in list(waiting.items()):
            del waiting[id]
            if not ended or ended > oldest:
                found = id
                break
        if not waiting:
            del self._by_digest[digest]
        return found

    def expire(self, oldest: float) -> None:
        """Removes jobs that ended at ``oldest`` or before: their clients have not repeated the request in time."""
        for digest, waiting in list(self._by_digest.items()):
            for id, ended in list(waiting.items()):
                if ended and ended <= oldest:
                    del waiting[id]
            if not waiting:
                del self._by_digest[digest]

    def clear(self) -> None:
        self._by_digest.clear()
