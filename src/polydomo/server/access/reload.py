"""Reloads the access file: the new rules apply to new and to existing connections."""

import logging

from polydomo.errors import SettingError
from polydomo.model.records import Session
from polydomo.server import logs
from polydomo.server.host import Host
from polydomo.server.logs import say
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.link import Link

LOG = logs.get("server")


def reload(server: Host) -> None:
    """Closes the connections that have lost their rights. If the file is invalid, logs one line and keeps the old rules."""
    access = server.access
    if access is None:
        return
    before = access.file
    try:
        access.reload()
    except SettingError as error:
        say(LOG, logging.ERROR, "the access file is invalid; the old rules stay in force", why=str(error))
        return
    server.wake()
    for warning in access.file.warnings:
        say(LOG, logging.WARNING, "access file", why=warning)
    broker = server.broker
    broker.access.replace(access.file.rules)
    for principal in before.rules.principals:
        if access.file.credentials.of(principal) != before.credentials.of(principal):
            broker.logins.forget(principal)
    denied: list[tuple[Link, str]] = []
    for connection in list(server.connections):
        identity, link = connection.identity, connection.link
        if identity is None or link is None or not link.open:
            continue
        why = ""
        proof = identity.counted or identity.proof
        if connection.principal and access.lookup(proof, identity.origin) != connection.principal:
            why = "the peer's credentials were revoked"
        elif isinstance(link.handler, Session):
            why = broker.revocation.lost_right(link.handler)
        if why:
            denied.append((link, why))
    broker.revocation.end_revoked()
    for link, why in denied:
        link.close(CloseCause.DENIED, why)
    say(LOG, logging.INFO, "access file reloaded", file=access.path, disconnected=len(denied))
