"""Encrypted peers, peers that must be rejected, and rights that are granted and revoked.

Three rules: a peer without valid credentials is never admitted; an operation without the right is never executed; a peer with valid
credentials and the right is never rejected. All keys and nonces come from the seed.
"""

from random import Random
from typing import TYPE_CHECKING

from polydomo.broker.guard.rules import AccessRule, AccessRules, Quota
from polydomo.protocols import registry
from polydomo.protocols.ends import Delivery, Event, Failure, Reply
from polydomo.server.access.file import ANONYMOUS, Credentials
from polydomo.web.session import HttpSession
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.http.head import RequestHead
from polydomo.wire.security.curve import CookieKeys, CurveClient, CurveServer, KeyPair, new_pair
from polydomo.wire.security.mechanism import Mechanism, Null
from sim.peers import Line, Peer

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World

HONEST, GUEST = "honest", "guest"
OUTSIDER = "outsider"  # may call the first service, the default queue of eMQP and Titanic
NOBODY = "nobody"  # is known, and has no right at all
FEW = (OUTSIDER, NOBODY)
# principals of HTTP clients
EVALUATOR = "evaluator"  # may call everything, which does not cover built-in services
READER = "reader"  # may inspect, and not subscribe
HASTY = "hasty"  # may send one request per second
BEARER = "Bearer "
EVERYTHING = {
    right: ["*"] for right in ("call", "offer", "publish", "subscribe", "register", "inspect", "tap", "bridge")
}
STRANGER, THIEF, CALLER, WORKER = "stranger", "thief", "caller", "worker"
KINDS = (STRANGER, THIEF, CALLER, CALLER, WORKER)


class Keys:
    """The keys of one world."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"keys {seed}")
        self.server = new_pair(self.rng.randbytes)
        self.honest = new_pair(self.rng.randbytes)
        self.guest = new_pair(self.rng.randbytes)
        self.stranger = new_pair(self.rng.randbytes)
        self.pairs = {name: new_pair(self.rng.randbytes) for name in FEW}
        curve = {self.honest.public: HONEST, self.guest.public: GUEST}
        self.credentials = Credentials(curve={**curve, **{pair.public: name for name, pair in self.pairs.items()}})

    def client(self, keys: KeyPair, socket_type: bytes, identity: bytes = b"") -> CurveClient:
        return CurveClient(keys, self.server.public, self.rng.randbytes, socket_type, identity=identity)


class Guard:
    """Access control of one run of one broker. The guest's right to call is granted and revoked; it never has the right to offer."""

    def __init__(self, node: "BrokerNode", keys: Keys) -> None:
        self.node = node
        self.keys = keys
        self.cookies = CookieKeys(keys.rng.randbytes)
        self.allowed = node.world.guest_may_call if node.options.siblings else True
        self.changed_at = node.now
        node.broker.access.replace(self._rules())

    def _rules(self) -> AccessRules:
        rules = [AccessRule(1, [HONEST, ANONYMOUS], EVERYTHING)]
        if self.allowed:
            rules.append(AccessRule(2, [GUEST], {"call": ["*"]}))
        first = self.node.world.services[0].decode()
        rules += [
            AccessRule(3, [OUTSIDER], {"call": [first, "default", "titanic.*"]}),
            AccessRule(4, [EVALUATOR], {"call": ["*"]}),
            AccessRule(5, [READER], {"inspect": ["*"]}),
            AccessRule(6, [HASTY], {"call": [first]}),
        ]
        known = [HONEST, GUEST, ANONYMOUS, *FEW, EVALUATOR, READER, HASTY]
        return AccessRules(known, rules, {HASTY: Quota(requests_per_second=1.0)})

    def may_call(self, who: str, service: bytes) -> bool:
        """By rules of its own, not those of the broker."""
        return who == OUTSIDER and (service in (self.node.world.services[0], b"default"))

    def identify(self, session: HttpSession, head: RequestHead) -> str:
        """The principal of an HTTP request. The simulated tokens are the names themselves."""
        given = head.headers.get("authorization", "")
        return given.removeprefix(BEARER) if given.startswith(BEARER) else ANONYMOUS

    def select(self, name: bytes) -> Mechanism:
        if name == b"CURVE":
            return CurveServer(self.keys.server, self.cookies, self.keys.rng.randbytes, self.keys.credentials.by_curve)
        plain = Null(True, b"ROUTER")
        plain.principal = ANONYMOUS
        return plain

    def flip(self) -> None:
        """A reload, as the server does it."""
        node = self.node
        if not node.up or node.stopping:
            return
        self.allowed = not self.allowed
        self.changed_at = node.now
        node.broker.now = node.hub.now = node.clock
        node.broker.access.replace(self._rules())
        for connection in list(node.connections):
            link, session = connection.link, connection.session
            if link is not None and link.open and session is not None:
                why = node.broker.revocation.lost_right(session)
                if why:
                    link.close(CloseCause.DENIED, why)
        node.wake()


class Intruder(Peer):
    """Connects once, and tries operations that are never or not always allowed."""

    def __init__(self, world: "World", node: "BrokerNode") -> None:
        super().__init__(world, f"gi{world.faults.get('intruder', 0)}", node)
        keys = world.keys
        assert keys is not None
        self.kind = self.rng.choice(KINDS)
        self.keys = {
            STRANGER: keys.stranger,
            THIEF: KeyPair(keys.honest.public, keys.stranger.secret),  # a public key is not a secret
        }.get(self.kind, keys.guest)
        self.sent_at = 0.0
        self.line: Line | None = None

    def mechanism(self, socket_type: bytes, identity: bytes) -> CurveClient:
        assert self.world.keys is not None
        return self.world.keys.client(self.keys, socket_type, identity)

    def start(self) -> None:
        if self.kind == WORKER:
            worker = registry.worker_end("mdx")
            worker.open([self.rng.choice(self.world.services)])
            self.line = Line(self, worker, self._opened, self._heard, lambda why: None)
        else:
            client = registry.client_end("mdx")
            self.line = Line(self, client, self._opened, self._heard, lambda why: None)
        self.later(8.0, self.leave)

    def _opened(self) -> None:
        if self.kind in (STRANGER, THIEF):
            self.world.breach("intruder", f"{self.name} was accepted although it is a {self.kind}")
        elif self.kind == CALLER and self.line is not None:
            self.sent_at = self.now
            client = self.line.end
            client.request(1, self.rng.choice(self.world.services), [b"<garbage>", self.name.encode()], 5.0)  # type: ignore[attr-defined]
            self.line.flush()

    def _heard(self, event: Event) -> None:
        guard = self.node.guard
        assert guard is not None
        steady = guard.changed_at < self.sent_at and guard.node is self.node
        if isinstance(event, Delivery):
            self.world.breach("intruder", f"{self.name} was given a request, and may not offer anything")
        elif isinstance(event, Reply) and steady and not guard.allowed:
            self.world.breach(
                "heard", f"{self.name} was answered, and has had no right to call since {guard.changed_at:.3f}"
            )
        elif isinstance(event, Failure) and event.code == "denied" and steady and guard.allowed:
            self.world.breach(
                "turned-away", f"{self.name} was denied, and has had the right since {guard.changed_at:.3f}"
            )

    def leave(self) -> None:
        if self.line is not None:
            self.line.close(abort=True)
