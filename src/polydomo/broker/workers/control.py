"""Control of a running broker: pause and resume a service, drain a service or a worker, cancel a request.

A paused service accepts requests and queues them, without expiry, until it is resumed; workers finish their running requests. A drained
service rejects new requests and finishes the others. A drained worker gets no more requests and stays connected.
"""

import json
from typing import TYPE_CHECKING

from polydomo.broker import service_table
from polydomo.broker.requests import deadlines, dispatch, open_requests, outcomes, queues, transitions
from polydomo.broker.reserved_names import ACCEPT, JOIN
from polydomo.model.request import PARKED, SHUTDOWN, Request
from polydomo.model.service import Service, Worker

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

Row = dict[str, object]


class Control:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.paused: dict[bytes, dict[Request, None]] = {}  # service name -> requests that wait until it is resumed
        self.drained: set[bytes] = set()
        self.since: dict[bytes, float] = {}  # service name -> time of the last pause or drain

    def mark(self, service: Service) -> None:
        """Called when a service is new in the table, or its pause or drain state has changed."""
        durable = self._broker.durable_requests
        service.paused = service.name in self.paused
        service.drained = service.name in self.drained
        covered = durable is not None and durable.covers(service.name)
        service.special = service.paused or service.drained or covered or service.name in (ACCEPT, JOIN)

    # --- services

    def pause(self, name: bytes, paused: bool) -> None:
        broker = self._broker
        if paused == (name in self.paused):
            return
        service = broker.services.get(name)
        if paused:
            self.since[name] = broker.now
            self.paused[name] = {}
            if service is not None:
                self.mark(service)
                for request in queues.waiting(service):
                    queues.remove(service, request)
                    self.hold(request)
                service_table.forget_unused(broker, service)
            return
        held = self.paused.pop(name)
        self._forget_time(name)
        for request in held:
            service = service_table.find_or_add(broker, name)
            self.mark(service)
            request.service = service
            transitions.open(request)
            queues.push(service, request)
            self._wait(service, request)
        service = broker.services.get(name)
        if service is not None:
            self.mark(service)
            dispatch.serve_queue(broker, service)
            if service.backlogged:
                dispatch.rebalance(broker, service)
        if broker.durable is not None:
            broker.durable.offered[name] = None

    def _wait(self, service: Service, request: Request) -> None:
        if request.time_limits is not None:
            deadlines.start_waiting(self._broker, request, request.time_limits)
        if not service.workers and not service.remote:
            service.no_worker_since = self._broker.now
            deadlines.watch_service(self._broker, service, request)

    def hold(self, request: Request) -> None:
        """Parks an accepted request to a paused service. It does not expire, except by its own deadline."""
        transitions.park(request)
        self.paused[request.service.name][request] = None
        limits = request.time_limits
        if limits is not None:
            limits.queue_deadline = 0.0
            deadlines.arm(self._broker, request, limits)

    def holds(self, request: Request) -> bool:
        """Whether the request waits for a paused service."""
        return request in self.paused.get(request.service.name, ())

    def release(self, request: Request) -> bool:
        """The request is about to end. Returns False if it does not wait for a paused service."""
        held = self.paused.get(request.service.name)
        return held is not None and held.pop(request, self) is None

    def _forget_time(self, name: bytes) -> None:
        if name not in self.paused and name not in self.drained:
            self.since.pop(name, None)

    def drain_service(self, name: bytes, drained: bool) -> None:
        if drained:
            if name not in self.drained:
                self.since[name] = self._broker.now
            self.drained.add(name)
        else:
            self.drained.discard(name)
            self._forget_time(name)
        service = self._broker.services.get(name)
        if service is not None:
            self.mark(service)

    def orders(self) -> "list[tuple[bytes, bytes]]":
        """The orders about services that are in force, as requests that repeat them."""
        found = [(b"polydomo.pause", name) for name in self.paused] + [
            (b"polydomo.drain", name) for name in self.drained
        ]
        return [
            (order, json.dumps({"service": name.decode("utf-8", "surrogateescape")}).encode()) for order, name in found
        ]

    def end_all(self) -> None:
        """Called at shutdown."""
        for held in self.paused.values():
            for request in list(held):
                del held[request]
                outcomes.fail(self._broker, request, SHUTDOWN, "the broker is shutting down")

    # --- workers

    def find_workers(self, text: str) -> "list[Worker]":
        """The workers with this name, or the worker with this number (``w7``)."""
        return [worker for worker in self._broker.workers if text in (worker.name, f"w{worker.number}")]

    def drain_worker(self, worker: Worker, drained: bool) -> None:
        if worker.draining == drained:
            return
        if drained:
            worker.draining = True
            worker.put_aside = worker.credit
            dispatch.clear_credit(worker)
            worker.drained_auto, worker.auto_credit = worker.auto_credit, 0
        else:
            worker.draining = False
            worker.auto_credit = worker.drained_auto
            credit, worker.put_aside = worker.put_aside, 0
            credit = max(credit, worker.auto_credit - len(worker.held))
            if credit:
                dispatch.add_credit(self._broker, worker, credit)

    # --- the control services

    def answer(self, name: bytes, body: bytes) -> Row:
        """Executes a control command: a JSON object with ``service``, ``worker`` or ``request``."""
        try:
            order = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            order = None
        if not isinstance(order, dict):
            return {"error": "invalid", "text": "the body must be a JSON object"}
        if name == b"polydomo.withdraw":
            return self._withdraw(order)
        service, worker = order.get("service"), order.get("worker")
        if isinstance(service, str) and service and worker is None:
            return self._order_service(name, service)
        if isinstance(worker, str) and worker and service is None and name != b"polydomo.pause":
            return self._order_workers(name, worker)
        return {"error": "invalid", "text": "the body must name a service or a worker"}

    def _order_service(self, name: bytes, service: str) -> Row:
        encoded = service.encode("utf-8", "surrogateescape")
        broker = self._broker
        if broker.is_reserved(encoded):
            return {"error": "invalid", "text": f"{service!r} is one of the broker's own services"}
        if name == b"polydomo.drain":
            self.drain_service(encoded, True)
        elif broker.durable is not None and broker.durable.jobs.leads:
            broker.durable.jobs.pause(encoded, name == b"polydomo.pause")
        if name != b"polydomo.drain":
            self.pause(encoded, name == b"polydomo.pause")
        if name == b"polydomo.resume":
            self.drain_service(encoded, False)
        known = broker.services.get(encoded)
        waiting = len(self.paused.get(encoded, ())) + (known.queue_length if known is not None else 0)
        running = sum(len(worker.held) for worker in known.workers) if known is not None else 0
        return {"service": service, "paused": encoded in self.paused, "drained": encoded in self.drained,
                "queued": waiting, "running": running, "known": known is not None and bool(known.workers)}  # fmt: skip

    def _order_workers(self, name: bytes, text: str) -> Row:
        found = self.find_workers(text)
        if not found:
            return {"error": "not-found", "text": f"no such worker: {text!r}; `polydomo workers` lists them"}
        for worker in found:
            self.drain_worker(worker, name == b"polydomo.drain")
        return {"workers": [{"worker": f"w{worker.number}", "name": worker.name, "held": len(worker.held),
                             "draining": worker.draining} for worker in found]}  # fmt: skip

    def _withdraw(self, order: Row) -> Row:
        """Cancels an open request. Its client gets a failure if the protocol has one."""
        wanted = order.get("request")
        broker = self._broker
        request = open_requests.find(broker, wanted)
        if request is not None and not request.session.is_internal:
            outcomes.cancel_by_order(broker, request, "cancelled by an operator")
            return {"request": wanted, "state": "cancelled"}
        return {"error": "not-found", "text": f"no open request {wanted!r}; `polydomo requests` lists them"}

    def check_invariants(self) -> None:
        for name, held in self.paused.items():
            for request in held:
                assert request.state == PARKED and request.service.name == name, (
                    f"request {request.number} does not wait for a paused service"
                )
                assert request in request.session.requests, (
                    f"request {request.number} waits for a paused service and is not open"
                )
