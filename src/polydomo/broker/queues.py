"""The waiting line of one service: given-back requests first, then clients in turn, each client's requests in order."""

from collections import deque

from polydomo.protocols.model import Service
from polydomo.protocols.request import Request
from polydomo.protocols.session import Session


def of_client(service: Service, session: Session) -> deque[Request]:
    """What waits of this client, which is about to become more."""
    queue = service.client_queues.get(session)
    if queue is None:
        queue = service.client_queues[session] = deque()
        service.round_robin.append(queue)
    return queue


def push(service: Service, request: Request) -> None:
    of_client(service, request.session).append(request)
    service.queue_length += 1


def push_front(service: Service, request: Request) -> None:
    """To the head of the line."""
    service.retries.appendleft(request)
    service.queue_length += 1


def pop(service: Service) -> Request:
    """The next request; there must be one."""
    service.queue_length -= 1
    if service.retries:
        return service.retries.popleft()
    turns = service.round_robin
    queue = turns.popleft()
    request = queue.popleft()
    if queue:
        turns.append(queue)
    else:
        del service.client_queues[request.session]
    return request


def first(service: Service) -> Request:
    """What ``pop`` would take; there must be one."""
    return service.retries[0] if service.retries else service.round_robin[0][0]


def remove(service: Service, request: Request) -> None:
    """Takes a request out of the line, wherever it stands."""
    service.queue_length -= 1
    if request.attempts and request in service.retries:
        service.retries.remove(request)
        return
    session = request.session
    queue = service.client_queues[session]
    queue.remove(request)
    if not queue:
        del service.client_queues[session]
        service.round_robin.remove(queue)  # the only one that is empty


def oldest(service: Service) -> Request | None:
    """The request that has been accepted first: what was given back or passed on may stand anywhere."""
    return min(waiting(service), key=lambda request: request.accepted, default=None)


def waiting(service: Service) -> list[Request]:
    """Everything in the line, given-back ones first, then client by client."""
    found = list(service.retries)
    for queue in service.round_robin:
        found.extend(queue)
    return found
