"""The events in the words of each protocol: what a message is called where it was sent."""

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

WORDS: dict[str, dict[str, str]] = {
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
}

FROM_US = (schema.DISPATCHED,)  # what the broker sends; of the others, the peer is the sender
MESSAGES = frozenset(event for words in WORDS.values() for event in words) - {schema.LATE}


def word(protocol: str, event: str) -> str:
    """What the protocol calls the message; nothing, if the event is not one of its messages."""
    return WORDS.get(protocol, {}).get(event, "")
