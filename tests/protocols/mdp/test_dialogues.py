"""Each published MDP peer is answered in its own words."""

import pytest

from polydomo.model.name_patterns import PatternMap
from polydomo.model.tuning import Tuning
from tests.protocols.mdp.dialogues import DIALOGUES, LIBMDP, MAJORTOMO, Client, Step
from tests.protocols.mdp.rig import Peer, Rig

REQ = {"zguide": {"c1", "c3", "c4"}, "pyzmq-mdp": {"c"}}  # clients on a REQ socket, which adds the empty frame itself

NAMES = {
    "zguide": ("mdp1", ""),
    "pyzmq-mdp": ("mdp1", ""),
    "nodejs-mdp02": ("mdp2", "rfc18"),
    "majortomo": ("mdp2", "majortomo"),
    "libmdp": ("mdp2", "libmdp"),
    "zmq-mdp2": ("mdp2", "zmq-mdp2"),
}


def play(rig: Rig, dialogue: list[Step], req: set[str]) -> dict[str, Peer]:
    """Says what the peers say, in order; everything they hear must be what stands there, and nothing else."""
    peers: dict[str, Peer] = {}
    clients: dict[Client, bytes] = {}
    for number, (name, direction, frames) in enumerate(dialogue):
        if direction == "wait":
            assert isinstance(frames[0], bytes)
            rig.wait(float(frames[0]))
            continue
        if name not in peers:
            peers[name] = rig.peer(b"REQ" if name in req else b"DEALER")
        peer = peers[name]
        if direction == ">":
            peer.say(*(clients[frame] if isinstance(frame, Client) else frame for frame in frames))
            continue
        assert peer.messages, f"step {number}: {name} hears nothing"
        heard = peer.messages.pop(0)
        assert len(heard) == len(frames), f"step {number}: {heard}"
        for frame, expected in zip(heard, frames, strict=True):
            if isinstance(expected, Client):
                assert frame == clients.setdefault(expected, frame), f"step {number}"
            else:
                assert frame == expected, f"step {number}: {heard}"
    for name, peer in peers.items():
        assert peer.heard() == [], f"{name} hears more than it should"
        assert peer.closed == ""
    assert len(set(clients.values())) == len(clients), "two requests under one address"
    return peers


@pytest.mark.parametrize("name", sorted(DIALOGUES))
def test_a_published_peer_is_answered_in_its_dialect(name: str) -> None:
    rig = Rig()
    peers = play(rig, DIALOGUES[name], REQ.get(name, set()))
    assert set(rig.notes.outcomes) == {"ok"} and rig.notes.violations == []
    for peer in peers.values():
        assert (peer.session.protocol, peer.session.dialect) == NAMES[name]


@pytest.mark.parametrize(("dialect_name", "dialogue"), [("libmdp", LIBMDP), ("majortomo", MAJORTOMO)])
def test_a_setting_per_service_skips_the_wait(dialect_name: str, dialogue: list[Step]) -> None:
    rig = Rig(Tuning(mdp2_dialects=PatternMap({"tea": dialect_name, "stream": dialect_name})))
    play(rig, dialogue, set())
    assert rig.notes.violations == []


@pytest.mark.parametrize("name", sorted(DIALOGUES))
def test_every_split_of_the_same_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dialogues again, with a broker that gets its bytes three at a time."""
    from polydomo.wire.zmtp.link import ZmtpLink

    whole = ZmtpLink.receive

    def bit_by_bit(self: ZmtpLink, data: bytes) -> None:
        for i in range(0, len(data), 3):
            whole(self, data[i : i + 3])

    monkeypatch.setattr(ZmtpLink, "receive", bit_by_bit)
    play(Rig(), DIALOGUES[name], REQ.get(name, set()))
