"""Protocols by name."""

import pytest

from polydomo.errors import SettingError
from polydomo.protocols import registry


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
