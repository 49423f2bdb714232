"""What each protocol calls the message behind an event."""

from polydomo.journal import schema

_MAJORDOMO = {
    schema.ACCEPTED: "REQUEST",
    schema.DISPATCHED: "REQUEST",
    schema.PARTIAL: "PARTIAL",
    schema.FINAL: "FINAL",
    schema.STALE: "FINAL",
    schema.UNHEARD: "FINAL",
    schema.REGISTERED: "READY",
    schema.LEFT: "DISCONNECT",
    schema.LATE: "HEARTBEAT",
}

NAMES: dict[str, dict[str, str]] = {
    "mdp1": {**_MAJORDOMO, schema.FINAL: "REPLY", schema.STALE: "REPLY", schema.UNHEARD: "REPLY"},
    "mdp2": _MAJORDOMO,
    "mdx": {**_MAJORDOMO, schema.LATE: "PING"},
    "dcp": {
        schema.ACCEPTED: "request",
        schema.DISPATCHED: "request",
        schema.FINAL: "reply",
        schema.STALE: "reply",
        schema.UNHEARD: "reply",
        schema.FORWARDED: "request",
        schema.REGISTERED: "registration",
        schema.GRANTED: "ping",
        schema.LATE: "ping",
    },
    "emqp": {
        schema.ACCEPTED: "REQUEST",
        schema.DISPATCHED: "REQUEST",
        schema.FINAL: "REPLY",
        schema.STALE: "REPLY",
        schema.UNHEARD: "REPLY",
        schema.REGISTERED: "INFORM",
        schema.GRANTED: "READY",
        schema.LEFT: "DISCONNECT",
        schema.LATE: "HEARTBEAT",
        schema.PUBLISHED: "PUBLISH",
    },
    "memo": {
        schema.ACCEPTED: "JOB",
        schema.DISPATCHED: "JOB",
        schema.FINAL: "RESULT",
        schema.STALE: "RESULT",
        schema.UNHEARD: "RESULT",
        schema.REGISTERED: "READY",
        schema.GRANTED: "HEARTBEAT",
        schema.LEFT: "DISCONNECT",
        schema.LATE: "HEARTBEAT",
    },
    "dbp": {
        schema.DISPATCHED: "REQUEST",
        schema.FINAL: "REPLY",
        schema.STALE: "REPLY",
        schema.UNHEARD: "REPLY",
        schema.REGISTERED: "REGISTRATION",
        schema.LEFT: "DISCONNECT",
        schema.LATE: "HEARTBEAT",
    },
}

FROM_BROKER = (schema.DISPATCHED,)  # sent by the broker; the others are sent by the peer
MESSAGES = frozenset(event for names in NAMES.values() for event in names) - {schema.LATE}


def name_of(protocol: str, event: str) -> str:
    """The name of the message in its protocol; empty if the event is not a message of it."""
    return NAMES.get(protocol, {}).get(event, "")
