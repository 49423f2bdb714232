"""Seams for tests that run with the interpreted and with the compiled core."""

import pytest

from polydomo.model.records import Session
from polydomo.protocols.detect import Detector
from polydomo.protocols.registry import Protocol
from polydomo.wire.link import Link
from sim.replacing import CAN_REPLACE

# For a test that replaces a function or a number of the core with ``swap`` or ``set_limit`` (sim/replacing.py).
replaces_core = pytest.mark.skipif(not CAN_REPLACE, reason="this compiled core has no seams; `make test-compiled` does")


class GeneralDetector(Detector):
    """Its sessions take every message with the general decoder, none with the fast path."""

    def make_session(self, protocol: Protocol, link: Link) -> Session:
        session = super().make_session(protocol, link)
        session.has_fast_path = False
        return session
