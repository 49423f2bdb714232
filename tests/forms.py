"""Seams for tests that run with the interpreted and with the compiled core."""

import pytest

from polydomo.native import is_compiled
from polydomo.protocols.detect import Detector
from polydomo.protocols.registry import Protocol
from polydomo.protocols.session import Session
from polydomo.wire.link import Link

# For a test that replaces a function or a constant of the core: compiled modules call each other directly and contain their constants.
interpreted_only = pytest.mark.skipif(
    is_compiled(), reason="replaces a part of the core, which compiled code does not look up by name"
)


class GeneralDetector(Detector):
    """Its sessions take every message with the general decoder, none with the fast path."""

    def make_session(self, protocol: Protocol, link: Link) -> Session:
        session = super().make_session(protocol, link)
        session.has_fast_path = False
        return session
