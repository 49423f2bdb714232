"""Control of a running broker: pause and resume a service, drain a service or a worker, cancel a request.

A paused service accepts requests and queues them, without expiry, until it is resumed; workers finish their running requests. A drained
service rejects new requests and finishes the others. A drained worker gets no more requests and stays connected.
"""

import json

from polydomo.broker import service_table
from polydomo.broker.jobs.jobs import Jobs
from polydomo.broker.requests import deadlines, dispatch, open_requests, outcomes, pausing, queues, transitions
from polydomo.broker.reserved_names import is_reserved
from polydomo.broker.state import State
from polydomo.model.outcomes import SHUTDOWN
from polydomo.model.records import Request, Service, Worker

Row = dict[str, object]


class Control:
    def __init__(self, state: State) -> None:
        self._state = state
        self.jobs: Jobs | None = None  # of durable services, if this process has the job store

    # --- services

    def pause(self, name: bytes, paused: bool) -> None:
        state = self._state
        if paused == (name in self._state.paused):
            return
        service = state.services.get(name)
        if paused:
            self._state.since[name] = state.now
            self._state.paused[name] = {}
            if service is not None:
                pausing.mark(self._state, service)
                for request in queues.waiting(service):
                    queues.remove(service, request)
                    pausing.hold(self._state, request)
                service_table.forget_unused(state, service)
            return
        held = self._state.paused.pop(name)
        self._forget_time(name)
        for request in held:
            service = service_table.find_or_add(state, name)
            pausing.mark(self._state, service)
            request.service = service
            transitions.open(request)
            queues.push(service, request)
            self._wait(service, request)
        service = state.services.get(name)
        if service is not None:
            pausing.mark(self._state, service)
            dispatch.serve_queue(state, service)
            if service.backlogged:
                dispatch.rebalance(state, service)
        if state.offered is not None:
            state.offered[name] = None

    def _wait(self, service: Service, request: Request) -> None:
        if request.time_limits is not None:
            deadlines.start_waiting(self._state, request, request.time_limits)
        if not service.workers and not service.remote:
            service.no_worker_since = self._state.now
            deadlines.watch_service(self._state, service, request)

    def _forget_time(self, name: bytes) -> None:
        if name not in self._state.paused and name not in self._state.drained:
            self._state.since.pop(name, None)

    def drain_service(self, name: bytes, drained: bool) -> None:
        if drained:
            if name not in self._state.drained:
                self._state.since[name] = self._state.now
            self._state.drained.add(name)
        else:
            self._state.drained.discard(name)
            self._forget_time(name)
        service = self._state.services.get(name)
        if service is not None:
            pausing.mark(self._state, service)

    def orders(self) -> "list[tuple[bytes, bytes]]":
        """The orders about services that are in force, as requests that repeat them."""
        found = [(b"polydomo.pause", name) for name in self._state.paused] + [
            (b"polydomo.drain", name) for name in self._state.drained
        ]
        return [
            (order, json.dumps({"service": name.decode("utf-8", "surrogateescape")}).encode()) for order, name in found
        ]

    def end_all(self) -> None:
        """Called at shutdown."""
        for held in self._state.paused.values():
            for request in list(held):
                del held[request]
                outcomes.fail(self._state, request, SHUTDOWN, "the broker is shutting down")

    # --- workers

    def find_workers(self, text: str) -> "list[Worker]":
        """The workers with this name, or the worker with this number (``w7``)."""
        return [worker for worker in self._state.workers if text in (worker.name, f"w{worker.number}")]

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
                dispatch.add_credit(self._state, worker, credit)

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
        state = self._state
        if is_reserved(encoded):
            return {"error": "invalid", "text": f"{service!r} is one of the broker's own services"}
        if name == b"polydomo.drain":
            self.drain_service(encoded, True)
        elif self.jobs is not None and self.jobs.leads:
            self.jobs.pause(encoded, name == b"polydomo.pause")
        if name != b"polydomo.drain":
            self.pause(encoded, name == b"polydomo.pause")
        if name == b"polydomo.resume":
            self.drain_service(encoded, False)
        known = state.services.get(encoded)
        waiting = len(self._state.paused.get(encoded, ())) + (known.queue_length if known is not None else 0)
        running = sum(len(worker.held) for worker in known.workers) if known is not None else 0
        return {"service": service, "paused": encoded in self._state.paused, "drained": encoded in self._state.drained,
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
        state = self._state
        request = open_requests.find(state, wanted)
        if request is not None and not request.session.is_internal:
            outcomes.cancel_and_tell(state, request, "cancelled by an operator")
            return {"request": wanted, "state": "cancelled"}
        return {"error": "not-found", "text": f"no open request {wanted!r}; `polydomo requests` lists them"}
