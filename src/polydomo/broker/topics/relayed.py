"""Publications of other brokers, which may arrive over several bridges: each is delivered once."""

from polydomo.broker import sessions
from polydomo.broker.identity import identity
from polydomo.broker.state import State
from polydomo.broker.topics.last_values import LastValues
from polydomo.limits import MAX_CARRIERS, MAX_RELAYED, RELAY_JUMP
from polydomo.model.records import Session


class RelayedPublications:
    def __init__(self, state: State, last_values: LastValues) -> None:
        self._state = state
        self._last_values = last_values
        # origin, topic -> number of the last publication, and the bridge it came over; least recent first
        self.relayed: dict[tuple[bytes, bytes], tuple[int, Session]] = {}
        self.carriers: dict[bytes, tuple[Session, int]] = {}  # origin -> its bridge, and the highest number

    def first_seen(self, session: Session, origin: bytes, topic: bytes, number: int) -> bool:
        """Whether a publication of another broker is new and arrived over the right bridge: the direct bridge to that broker if there is
        one, otherwise the first bridge that delivered a publication of it, as long as that bridge exists. Over one bridge, the
        publications of a topic arrive in order, so comparing with the last number is enough."""
        if origin == identity(self._state):
            return False
        own = session.peer_identity == origin
        carrier, highest = self.carriers.get(origin, (session, 0))
        if carrier is not session:
            if not own and not carrier.disconnected:
                return False
            highest = 0
        if highest and number > highest + RELAY_JUMP:
            sessions.violated(
                self._state, session, f"the sequence number of a publication jumped from {highest} to {number}"
            )
            return False
        key = (origin, topic)
        last, before = self.relayed.get(key, (0, session))
        if number <= last and (before is session or not own or self._is_last_value(origin, topic, number)):
            return False
        self.carriers[origin] = session, max(highest, number)
        self.relayed.pop(key, None)
        self.relayed[key] = number, session
        if len(self.relayed) > MAX_RELAYED:
            del self.relayed[next(iter(self.relayed))]
        if len(self.carriers) > MAX_CARRIERS:
            del self.carriers[next(iter(self.carriers))]
        return True

    def _is_last_value(self, origin: bytes, topic: bytes, number: int) -> bool:
        """Whether the publication is already the topic's last value, because a new bridge sends it again."""
        value = self._last_values.get(topic)
        return value is not None and value.origin == origin and value.number == number
