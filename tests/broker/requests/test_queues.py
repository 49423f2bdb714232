"""The queue of one service, compared with a slow and simple model."""

from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.requests import queues
from polydomo.broker.requests.transitions import new_request
from polydomo.model.records import Request, Service, Session
from tests.broker.rig import Peer, World

CLIENTS = 3


class Line:
    """The model: a list of given-back requests, and per client a list; whose turn it is, a list."""

    def __init__(self) -> None:
        self.returned: list[Request] = []
        self.queues: dict[Session, list[Request]] = {}
        self.turns: list[Session] = []

    def push(self, request: Request) -> None:
        if request.session not in self.queues:
            self.queues[request.session] = []
            self.turns.append(request.session)
        self.queues[request.session].append(request)

    def pop(self) -> Request:
        if self.returned:
            return self.returned.pop(0)
        session = self.turns.pop(0)
        request = self.queues[session].pop(0)
        if self.queues[session]:
            self.turns.append(session)
        else:
            del self.queues[session]
        return request

    def remove(self, request: Request) -> None:
        if request in self.returned:
            self.returned.remove(request)
            return
        queue = self.queues[request.session]
        queue.remove(request)
        if not queue:
            del self.queues[request.session]
            self.turns.remove(request.session)

    def all(self) -> list[Request]:
        return self.returned + [request for session in self.turns for request in self.queues[session]]


@given(st.lists(st.tuples(st.sampled_from(["push", "push", "pop", "back", "remove"]), st.integers(0, 99)), max_size=60))
@settings(max_examples=100)
def test_the_queue_matches_the_model(steps: list[tuple[str, int]]) -> None:
    world, service, model = World(), Service(b"echo"), Line()
    clients: list[Session] = [Peer(world) for _ in range(CLIENTS)]
    out: list[Request] = []
    for number, (step, choice) in enumerate(steps):
        if step == "push":
            request = new_request(number, clients[choice % CLIENTS], service, b"", None, float(number))
            queues.push(service, request)
            model.push(request)
        elif step == "pop" and model.all():
            request = queues.pop(service)
            assert request is model.pop()
            request.attempts += 1
            out.append(request)
        elif step == "back" and out:
            request = out.pop(choice % len(out))
            queues.push_front(service, request)
            model.returned.insert(0, request)
        elif step == "remove" and model.all():
            request = model.all()[choice % len(model.all())]
            queues.remove(service, request)
            model.remove(request)
        assert queues.waiting(service) == model.all()
        assert service.queue_length == len(model.all())
        first = queues.oldest(service)
        assert (first is None) == (not model.all())
        assert first is None or first.accepted == min(request.accepted for request in model.all())
