"""Protocols by name."""

import pytest

from polydomo.errors import SettingError
from polydomo.model.tuning import Tuning
from polydomo.protocols import registry
from polydomo.wire.link import Hub, LinkHandler
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink
from tests.broker.rig import World


@pytest.mark.parametrize("name", registry.names())
def test_both_ends(name: str) -> None:
    assert registry.find(name).name == name
    assert registry.client_end(name).protocol == name
    assert registry.worker_end(name).protocol == name


def test_every_protocol_with_requests() -> None:
    assert set(registry.names()) == {"mdp1", "mdp2", "mdx", "dcp", "memo", "emqp"}
    assert registry.DEFAULT in registry.names()


@pytest.mark.parametrize(("alias", "name"), registry.ALIASES.items())
def test_aliases(alias: str, name: str) -> None:
    assert registry.find(alias.upper()).name == name


def test_only_mdp_has_no_ids() -> None:
    assert [name for name in registry.names() if not registry.client_end(name).concurrent] == ["mdp1", "mdp2"]


def test_options_reach_the_end() -> None:
    assert registry.client_end("mdx", header=b"OWN").out == []
    with pytest.raises(TypeError):
        registry.client_end("mdp1", header=b"OWN")


def test_unknown() -> None:
    with pytest.raises(SettingError, match="protocol: 'amqp' is not one of"):
        registry.find("amqp")


def test_every_entry_is_named_like_its_session() -> None:
    broker = World().broker
    for protocol in registry.PROTOCOLS:
        link = (SpLink if protocol.wire == "sp" else ZmtpLink)(Hub(), LinkHandler(), "")
        assert protocol.session(broker, link).protocol == protocol.name
    assert len({protocol.name for protocol in registry.PROTOCOLS}) == len(registry.PROTOCOLS)


def test_no_beginning_hides_another() -> None:
    found = [(beginning, protocol) for protocol in registry.PROTOCOLS for beginning in protocol.beginnings]
    for beginning, protocol in found:
        assert registry.for_message(Tuning(), beginning + b"rest", 0) is protocol
        assert not [other for other, _ in found if other != beginning and beginning.startswith(other)]


def test_a_socket_that_has_one_protocol() -> None:
    named = {
        (wire, kind): found.name if found is not None else None
        for wire, kind in (("sp", b""), ("zmtp", b"ROUTER"), ("zmtp", b"XPUB"), ("zmtp", b"XSUB"))
        for found in [registry.for_socket(wire, kind)]
    }
    assert named == {
        ("sp", b""): "memo",
        ("zmtp", b"ROUTER"): None,
        ("zmtp", b"XPUB"): "sub",
        ("zmtp", b"XSUB"): "pub",
    }
