"""Which worker, and which service, where there is more to it than least recently used."""

from polydomo.broker import queues
from polydomo.protocols.verbs import Service, Worker


def heaviest(service: Service) -> Worker:
    """The worker with the highest weight; among equals an idle one, then the least recently used. There must be one."""
    best: Worker | None = None
    weight = 0
    for pool in (service.idle, service.spare):
        for worker in pool:
            own = service.workers[worker]
            if best is None or own > weight:
                best = worker
                weight = own
    assert best is not None
    return best


def neediest(worker: Worker) -> Service | None:
    """Of the services a worker offers, the one it should serve next: the highest weight, then the longest wait."""
    best: Service | None = None
    weight = 0
    since = 0.0
    for service, own in worker.services.items():
        if not service.length or (best is not None and own < weight):
            continue
        first = queues.oldest(service)
        if first is not None and (best is None or own > weight or first.accepted < since):
            best = service
            weight = own
            since = first.accepted
    return best
