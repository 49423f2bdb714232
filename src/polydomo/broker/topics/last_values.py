"""The last value of each topic, and its delivery to late subscribers.

A late subscriber first receives the last value of each matching topic, in topic order, then new messages: in order and without
duplicates. Each turn sends as many as ``VALUES_PER_TURN`` allows and the subscriber reads. If this takes several turns, a topic that has
not been sent yet is sent with its newest value, and new messages of the other topics wait until all last values have been sent.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import islice

from polydomo.broker.topics.subscriptions import Subscriptions
from polydomo.broker.topics.trie import Trie
from polydomo.limits import COST_VALUE, VALUE_PIECE, VALUES_PER_TURN
from polydomo.model.records import Publication, Session


class CatchUp:
    """A subscriber that still has last values to receive."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.prefixes: list[bytes] = []  # prefixes whose values are still to be sent; the first is in progress
        self.had: dict[bytes, list[bytes]] = {}  # prefix -> narrower prefixes whose values were sent before
        self.cursor: bytes | None = None  # the last topic sent under the first prefix

    def has_had(self, prefix: bytes, topic: bytes) -> bool:
        """Whether the topic's value was already sent for an earlier subscription."""
        had = self.had[prefix]
        place = bisect_right(had, topic) - 1
        return place >= 0 and topic.startswith(had[place])

    def expects(self, topic: bytes) -> bool:
        """Whether the topic's value is still to be sent."""
        for i, prefix in enumerate(self.prefixes):
            if (
                topic.startswith(prefix)
                and (i or self.cursor is None or topic > self.cursor)
                and not self.has_had(prefix, topic)
            ):
                return True
        return False


class LastValues:
    """Bounded in topics and bytes: at either limit, the value that has not changed for longest is evicted."""

    def __init__(
        self, max_topics: int, max_bytes: int, hears: "Callable[[Session, bytes], bool] | None" = None
    ) -> None:
        self._hears = hears  # whether a session with a principal may receive a topic
        self.max_topics = max_topics
        self.max_bytes = max_bytes
        self.per_turn = VALUES_PER_TURN
        self.size = 0  # bytes of all topics and messages
        self.forgotten = 0  # number of evicted values
        self.catching_up: dict[Session, CatchUp] = {}  # late subscribers, round robin
        self._trie: Trie[Publication] = Trie()
        self._order: dict[bytes, Publication] = {}  # ordered by last change, the oldest first

    def __len__(self) -> int:
        return len(self._order)

    def memory(self) -> int:
        """Memory used by the values."""
        return self.size + COST_VALUE * len(self._order)

    def put(self, publication: Publication) -> bool:
        """Stores a value. Returns False if it is too large; then the topic has no last value."""
        topic = publication.topic
        message = publication.message
        value = self._order.pop(topic, None)
        if len(topic) + len(message) > self.max_bytes:
            if value is not None:
                self._lose(value)
            return False
        if value is not None:
            self.size += len(message) - len(value.message)
            value.message = message
            value.origin = publication.origin
            value.number = publication.number
            self._order[topic] = value
        else:
            self._order[topic] = publication
            self._trie.set(topic, publication)
            self.size += len(topic) + len(message)
        while self.size > self.max_bytes or len(self._order) > self.max_topics:
            self._lose(self._order.pop(next(iter(self._order))))
            self.forgotten += 1
        return True

    def clear(self, topic: bytes) -> None:
        """Removes the topic's last value."""
        value = self._order.pop(topic, None)
        if value is not None:
            self._lose(value)

    def _lose(self, value: Publication) -> None:
        self._trie.remove(value.topic)
        self.size -= len(value.topic) + len(value.message)

    def get(self, topic: bytes) -> Publication | None:
        return self._order.get(topic)

    def under(self, prefix: bytes, limit: int) -> list[Publication]:
        """The values of topics under ``prefix``, in topic order, at most ``limit``."""
        return list(islice(self._trie.under(prefix), limit))

    # --- late subscribers ----------------------------------------------------------------------------------------------------

    def subscribed(self, session: Session, prefix: bytes, subscriptions: Subscriptions) -> None:
        """Called when the session has subscribed to ``prefix``: queues the values under it, except those already sent."""
        if not self._order or subscriptions.covered(session, prefix) or next(self._trie.under(prefix), None) is None:
            return
        catch_up = self.catching_up.get(session)
        first = not self.catching_up
        if catch_up is None:
            catch_up = self.catching_up[session] = CatchUp(session)
            session.catching_up = True
        catch_up.prefixes.append(prefix)
        catch_up.had[prefix] = subscriptions.narrower(session, prefix)
        if first:
            self.serve()

    def unsubscribed(self, session: Session, prefix: bytes) -> None:
        """Called when the session has unsubscribed from ``prefix``."""
        catch_up = self.catching_up.get(session)
        if catch_up is not None and prefix in catch_up.had:
            if catch_up.prefixes[0] == prefix:
                catch_up.cursor = None
            catch_up.prefixes.remove(prefix)
            del catch_up.had[prefix]
            if not catch_up.prefixes:
                self._done(session)

    def forget(self, session: Session) -> None:
        """Called when the session is closed."""
        self.catching_up.pop(session, None)

    def can_serve(self) -> bool:
        """Whether a late subscriber waits for values and can receive them now."""
        return any(session.can_send_values() for session in self.catching_up)

    def serve(self) -> None:
        """Sends one turn's worth of values, to the subscribers that have waited longest."""
        budget = self.per_turn
        for session in list(self.catching_up):
            if not session.can_send_values():
                continue
            catch_up = self.catching_up.pop(session)
            budget = self._give(catch_up, budget)
            if catch_up.prefixes:
                self.catching_up[session] = catch_up
            else:
                self._done(session)
            if budget <= 0:
                return

    def _give(self, catch_up: CatchUp, budget: int) -> int:
        session = catch_up.session
        while catch_up.prefixes:
            prefix = catch_up.prefixes[0]
            for value in self._trie.under(prefix, catch_up.cursor):
                if budget <= 0:
                    return 0
                catch_up.cursor = value.topic
                budget -= 1
                if not catch_up.has_had(prefix, value.topic):
                    if session.principal and self._hears is not None and not self._hears(session, value.topic):
                        continue
                    session.send_last_value(value)
                    budget -= len(value.message) // VALUE_PIECE
            catch_up.cursor = None
            del catch_up.prefixes[0]
            del catch_up.had[prefix]
        return budget

    def _done(self, session: Session) -> None:
        self.catching_up.pop(session, None)
        session.catching_up = False
        session.on_caught_up()

    def check_invariants(self) -> None:
        """For tests: checks that redundant state is consistent."""
        self._trie.check_invariants()
        assert [value.topic for value in self._trie.under(b"")] == sorted(self._order)
        assert self.size == sum(len(v.topic) + len(v.message) for v in self._order.values())
        assert self.size <= self.max_bytes and len(self._order) <= self.max_topics
        for session, catch_up in self.catching_up.items():
            assert session.catching_up and not session.disconnected and catch_up.prefixes
            assert set(catch_up.prefixes) == set(catch_up.had)
