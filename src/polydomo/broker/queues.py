"""The waiting line of one service: given-back requests first, then clients in turn, each client's requests in order."""

from collections import deque

from polydomo.protocols.request import Request
from polydomo.protocols.verbs import Service, Session


def of(service: Service, session: Session) -> deque[Request]:
    """What waits of this client, which is about to become more."""
    queue = service.queues.get(session)
    if queue is None:
        queue = service.queues[session] = deque()
        service.turns.append(queue)
    return queue


def push(service: Service, request: Request) -> None:
    of(service, request.session).append(request)
    service.length += 1


def push_back(service: Service, request: Request) -> None:
    """To the head of the line."""
    service.returned.appendleft(request)
    service.length += 1


def pop(service: Service) -> Request:
    """The next request; there must be one."""
    service.length -= 1
    if service.returned:
        return service.returned.popleft()
    turns = service.turns
    queue = turns.popleft()
    request = queue.popleft()
    if queue:
        turns.append(queue)
    else:
        del service.queues[request.session]
    return request


def first(service: Service) -> Request:
    """What ``pop`` would take; there must be one."""
    return service.returned[0] if service.returned else service.turns[0][0]


def remove(service: Service, request: Request) -> None:
    """Takes a request out of the line, wherever it stands."""
    service.length -= 1
    if request.attempts and request in service.returned:
        service.returned.remove(request)
        return
    session = request.session
    queue = service.queues[session]
    queue.remove(request)
    if not queue:
        del service.queues[session]
        service.turns.remove(queue)  # the only one that is empty


def oldest(service: Service) -> Request | None:
    """The request that has been accepted first: what was given back or passed on may stand anywhere."""
    return min(waiting(service), key=lambda request: request.accepted, default=None)


def waiting(service: Service) -> list[Request]:
    """Everything in the line, given-back ones first, then client by client."""
    found = list(service.returned)
    for queue in service.turns:
        found.extend(queue)
    return found
