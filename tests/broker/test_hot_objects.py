"""Objects of the hot path stay small enough for CPython to share their keys: past 30 attributes every read becomes slower."""

import pytest

from polydomo.model.records import Service, Worker
from polydomo.native import is_compiled
from polydomo.protocols.mdp.mdp1 import Mdp1Session
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.link import Hub, LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink
from tests.broker.rig import World
from tests.wire.zmtp.rig import GREETING_31, ready

SHARED_KEYS = 30

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled classes have fields and no dictionary")


def test_hot_objects_share_their_keys() -> None:
    world = World()
    link = ZmtpLink(Hub(), LinkHandler(), "tcp://127.0.0.1:1")
    link.receive(GREETING_31 + ready())
    link.owner, link.source, link.local = world, "127.0.0.1", False  # as the server does
    sessions = [Mdp1Session(world.broker, link), MdxSession(world.broker, link)]
    for thing in (link, Service(b"echo"), Worker(sessions[0], None, 1, True, 0.0, 0.0), *sessions):
        count = len(vars(thing))
        assert count <= SHARED_KEYS, f"{type(thing).__name__} has {count} attributes"


def test_the_broker_has_slots_for_everything() -> None:
    assert not vars(World().broker)
