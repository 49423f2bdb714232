"""Which parked requests wait for which job: they get its progress."""

from collections.abc import Iterator

from polydomo.model.records import Request


class JobWaiters:
    def __init__(self) -> None:
        self._requests: dict[str, dict[Request, None]] = {}  # by job

    def add(self, id: str, request: Request) -> None:
        self._requests.setdefault(id, {})[request] = None

    def remove(self, id: str, request: Request) -> None:
        found = self._requests.get(id)
        if found is not None:
            found.pop(request, None)
            if not found:
                del self._requests[id]

    def of(self, id: str) -> list[Request]:
        return list(self._requests.get(id, ()))

    def __iter__(self) -> "Iterator[tuple[str, Request]]":
        for id, requests in self._requests.items():
            for request in requests:
                yield id, request
