"""The queue of one service: requeued requests first, then round robin over the clients, each client's requests in order.

The requests of a service with limits wait in ``service.limits`` instead.
"""

from collections import deque

from polydomo.model.records import Request, Service, Session


def of_client(service: Service, session: Session) -> deque[Request]:
    """The client's queue, to which the caller appends."""
    queue = service.client_queues.get(session)
    if queue is None:
        queue = service.client_queues[session] = deque()
        service.round_robin.append(queue)
    return queue


def startable(service: Service) -> bool:
    """Whether ``pop`` has a request: one waits, and is not over its limit."""
    return service.queue_length > 0 and (service.limits is None or service.limits.startable())


def push(service: Service, request: Request) -> None:
    if service.limits is None:
        of_client(service, request.session).append(request)
    else:
        service.limits.push(request)
    service.queue_length += 1


def push_front(service: Service, request: Request) -> None:
    """Puts a requeued request at the head of the queue."""
    if service.limits is None:
        service.retries.appendleft(request)
    else:
        service.limits.push_front(request)
    service.queue_length += 1


def pop(service: Service) -> Request:
    """Removes and returns the next request. It must be ``startable``."""
    service.queue_length -= 1
    if service.limits is not None:
        return service.limits.pop()
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


def pop_across(service: Service) -> Request:
    """The same for a request that goes to another process of this broker."""
    if service.limits is None:
        return pop(service)
    service.queue_length -= 1
    return service.limits.pop_across()


def first(service: Service) -> Request:
    """The request that ``pop`` would return. It must be ``startable``."""
    if service.limits is not None:
        return service.limits.first()
    return service.retries[0] if service.retries else service.round_robin[0][0]


def remove(service: Service, request: Request) -> None:
    """Removes a request from anywhere in the queue."""
    service.queue_length -= 1
    if service.limits is not None:
        service.limits.remove(request)
        return
    if request.attempts and request in service.retries:
        service.retries.remove(request)
        return
    session = request.session
    queue = service.client_queues[session]
    queue.remove(request)
    if not queue:
        del service.client_queues[session]
        service.round_robin.remove(queue)  # only this client's queue can be empty


def oldest(service: Service) -> Request | None:
    """The request that was accepted first. It can be anywhere in the queue, because of requeued and forwarded requests."""
    return min(waiting(service), key=lambda request: request.accepted, default=None)


def waiting(service: Service) -> list[Request]:
    """All queued requests: requeued ones first, then client by client."""
    if service.limits is not None:
        return service.limits.waiting()
    found = list(service.retries)
    for queue in service.round_robin:
        found.extend(queue)
    return found
