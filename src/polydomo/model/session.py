"""The base of the sessions of all protocols: a session that calls the broker."""

from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Request, Session
from polydomo.native import mypyc_attr
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.link import Link


@mypyc_attr(allow_interpreted_subclasses=True)
class ProtocolSession(Session):
    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(link)
        self.broker = broker

    def request_name(self, request: Request) -> str:
        return self.broker.request_name(request)

    def on_close(self, reason: CloseReason) -> None:
        self.broker.session_closed(self, reason)
