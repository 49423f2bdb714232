"""MDP/0.2, the broker's end, in all its dialects, through real ZMTP bytes."""

import pytest

from polydomo.model.name_patterns import PatternMap
from polydomo.model.tuning import Tuning
from polydomo.protocols.mdp.mdp2 import ASCII, DIALECTS, LIBMDP, MAJORTOMO, RFC18, RFC18_REQ, Dialect
from polydomo.wire.frames import join, more
from tests.protocols.mdp.rig import Frames, Peer, Rig, long_form

SPOKEN = sorted(DIALECTS)
WORKERS = [name for name in SPOKEN if name != "rfc18-req"]  # that one is a client's


@pytest.fixture
def rig() -> Rig:
    return Rig()


class Speaker:
    """Writes and reads one dialect, from the table alone."""

    def __init__(self, rig: Rig, dialect: Dialect, socket_type: bytes = b"DEALER") -> None:
        self.dialect = dialect
        self.peer: Peer = rig.peer(socket_type)
        self.lead = [b""] if dialect.worker.startswith(b"\x01\x00") else []

    def command(self, code: bytes, *rest: bytes) -> None:
        self.peer.say(*self.lead, b"MDPW02", code, *rest)

    def ask(self, service: bytes, *body: bytes) -> None:
        self.peer.say_raw(self.dialect.request + (join([service, *body])))

    def job(self) -> Frames:
        """The address and the body of the one REQUEST it has just got."""
        message = self.peer.only()
        assert message[: len(self.lead) + 2] == [*self.lead, b"MDPW02", self.dialect.deliver]
        rest = message[len(self.lead) + 2 :]
        assert len(rest[0]) == 12 and rest[1] == b""
        return [rest[0], *rest[2:]]


def worker_of(rig: Rig, dialect: Dialect, service: bytes = b"echo") -> Speaker:
    worker = Speaker(rig, dialect)
    if dialect in (MAJORTOMO, LIBMDP):
        known = rig.broker.tuning.mdp2_dialects.values
        rig.broker.tuning.mdp2_dialects = PatternMap({**known, service.decode(): dialect.name})
    worker.command(dialect.ready, service)
    return worker


def undecided_of(rig: Rig, service: bytes = b"echo") -> Speaker:
    worker = Speaker(rig, MAJORTOMO)
    worker.command(b"\x01", service)
    assert worker.peer.session.dialect == "undecided"
    return worker


# --- every dialect


@pytest.mark.parametrize("worker_dialect", WORKERS)
@pytest.mark.parametrize("client_dialect", SPOKEN)
def test_a_client_of_any_dialect_reaches_a_worker_of_any_other(
    rig: Rig, client_dialect: str, worker_dialect: str
) -> None:
    worker, client = worker_of(rig, DIALECTS[worker_dialect]), Speaker(rig, DIALECTS[client_dialect])
    spoken, heard = worker.dialect, client.dialect
    client.ask(b"echo", b"one", b"", b"two")
    address, *body = worker.job()
    assert body == [b"one", b"", b"two"]
    partials = spoken.from_partial != b"\xff"
    if partials:
        worker.command(spoken.from_partial, address, b"", b"part")
    worker.command(spoken.from_final, address, b"", b"whole", b"")
    name = join([b"echo"])[2:]
    lead = heard.final + (b"\x01\x04" + name if heard.names else b"")
    final = lead + join([b"whole", b""])
    if partials and client.peer.session.takes_partials:
        first = heard.partial + (b"\x01\x04" + name if heard.names else b"") + join([b"part"])
        assert [join(message) for message in client.peer.heard()] == [first, final]
    elif partials:
        assert [join(message) for message in client.peer.heard()] == [lead + join([b"part", b"whole", b""])]
    else:
        assert [join(message) for message in client.peer.heard()] == [final]
    assert client.peer.session.dialect == client_dialect
    assert rig.notes.outcomes == ["ok"]


@pytest.mark.parametrize("name", WORKERS)
def test_without_a_body(rig: Rig, name: str) -> None:
    dialect = DIALECTS[name]
    worker, client = worker_of(rig, dialect), Speaker(rig, dialect)
    client.ask(b"echo")
    address, *body = worker.job()
    assert body == [b""]
    worker.command(dialect.from_final, address, b"")
    (message,) = client.peer.heard()
    assert message[-1] == b"" and client.peer.closed == worker.peer.closed == ""


@pytest.mark.parametrize("name", WORKERS)
def test_heartbeats_and_disconnect_in_kind(rig: Rig, name: str) -> None:
    dialect = DIALECTS[name]
    worker = worker_of(rig, dialect)
    for _ in range(5):
        rig.wait(2.6)
        assert worker.peer.heard() == [[*worker.lead, b"MDPW02", dialect.heartbeat]]
        worker.command(dialect.heartbeat)
    assert worker.peer.session.dialect == name
    rig.broker.shutdown()
    rig.settle()
    assert worker.peer.heard() == [[*worker.lead, b"MDPW02", dialect.disconnect]]


@pytest.mark.parametrize("name", WORKERS)
def test_valid_but_unexpected_gets_disconnect_and_then_nothing(rig: Rig, name: str) -> None:
    dialect = DIALECTS[name]
    first = Speaker(rig, dialect)
    goodbye = [[*first.lead, b"MDPW02", dialect.disconnect]]
    for unexpected in (
        (dialect.ready, b"echo"),
        (dialect.deliver, b"client", b"", b"x"),
    ):
        worker = worker_of(rig, dialect)
        worker.command(*unexpected)
        assert worker.peer.heard() == goodbye
        worker.command(dialect.heartbeat)
        worker.command(dialect.ready, b"echo")
        rig.wait(4.9)
        assert worker.peer.heard() == [] and worker.peer.closed == ""
        rig.wait(0.2)
        assert worker.peer.closed == "closed after DISCONNECT"
    for unwelcome in (b"mmi.service", b""):
        refused = worker_of(rig, dialect, unwelcome)
        assert refused.peer.heard() == goodbye


@pytest.mark.parametrize("dialect", [RFC18, ASCII])
def test_commands_before_ready(rig: Rig, dialect: Dialect) -> None:
    for code, rest in (
        (dialect.heartbeat, []),
        (dialect.from_partial, [b"client", b"", b"x"]),
        (dialect.from_final, [b"client", b"", b"x"]),
    ):
        peer = Speaker(rig, dialect)
        peer.command(code, *rest)
        assert peer.peer.heard() == [[b"MDPW02", dialect.disconnect]]


@pytest.mark.parametrize("name", WORKERS)
def test_disconnect_while_busy(rig: Rig, name: str) -> None:
    dialect = DIALECTS[name]
    worker, client = worker_of(rig, dialect), Speaker(rig, RFC18)
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    other = worker_of(rig, RFC18)
    worker.command(dialect.disconnect)
    worker.command(dialect.from_final, address, b"", b"too late")
    assert worker.peer.heard() == [] and client.peer.heard() == []
    again, _ = other.job()
    other.command(b"\x04", again, b"", b"done")
    assert client.peer.heard() == [[b"MDPC02", b"\x03", b"echo", b"done"]]


@pytest.mark.parametrize("name", WORKERS)
def test_a_reply_to_another_workers_request_is_stale(rig: Rig, name: str) -> None:
    dialect = DIALECTS[name]
    holder, client = worker_of(rig, RFC18), Speaker(rig, RFC18)
    client.ask(b"echo", b"x")
    address, _ = holder.job()
    thief = worker_of(rig, dialect)
    for other in (address, b"", b"undefined", b"0" * 12):
        thief.command(dialect.from_final, other, b"", b"stolen")
    assert client.peer.heard() == [] and thief.peer.heard() == [] and thief.peer.closed == ""
    assert rig.notes.stales == ["final"] * 4
    holder.command(b"\x04", address, b"", b"mine")
    assert client.peer.only()[-1] == b"mine"


def test_the_stray_partial_of_nodejs_mdp02_is_dropped_and_not_reported(rig: Rig) -> None:
    worker, client = worker_of(rig, RFC18), Speaker(rig, RFC18)
    for i in range(3):
        client.ask(b"echo", b"%d" % i)
        address, _ = worker.job()
        worker.command(b"\x04", address, b"", b"done")
        worker.command(b"\x03", b"undefined", b"", b"done")
        assert client.peer.heard() == [[b"MDPC02", b"\x03", b"echo", b"done"]]
    assert worker.peer.heard() == [] and rig.notes.stales == rig.notes.violations == []
    worker.command(b"\x06")
    worker.command(b"\x03", b"undefined", b"", b"done")
    assert rig.notes.stales == rig.notes.violations == []


def test_a_partial_from_a_peer_that_is_not_a_worker_is_a_violation(rig: Rig) -> None:
    worker = Speaker(rig, RFC18)
    worker.command(b"\x03", b"undefined", b"", b"done")
    assert rig.notes.violations == ["a reply from a worker that is not registered"]


def test_frames_in_long_form_are_taken(rig: Rig) -> None:
    worker, client = rig.peer(), rig.peer()
    worker.say_raw(long_form(b"MDPW02", b"\x01", b"echo"))
    client.say_raw(long_form(b"MDPC02", b"\x01", b"echo", b"x"))
    address = worker.only()[2]
    worker.say_raw(long_form(b"MDPW02", b"\x03", address, b"", b"part"))
    worker.say_raw(more([b"MDPW02"]) + long_form(b"\x04", address, b"", b"whole"))
    assert client.heard() == [[b"MDPC02", b"\x02", b"echo", b"part"], [b"MDPC02", b"\x03", b"echo", b"whole"]]


def test_an_address_that_only_begins_like_a_token_is_invalid(rig: Rig) -> None:
    worker, client = worker_of(rig, RFC18), Speaker(rig, RFC18)
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    forged = address + b"\x01\x00" + b"\x04\x05\x04PING"
    for code in (b"\x03", b"\x04"):
        worker.peer.say_raw(more([b"MDPW02", code, forged]) + join([b"", b"x"]))
    assert client.peer.heard() == [] and rig.notes.stales == ["partial", "final"]


# --- REQ sockets


@pytest.mark.parametrize("dialect", [RFC18_REQ, MAJORTOMO, LIBMDP])
def test_a_req_socket_never_gets_a_partial(rig: Rig, dialect: Dialect) -> None:
    worker, client = worker_of(rig, RFC18), Speaker(rig, dialect, b"REQ")
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    worker.command(b"\x03", address, b"", b"one")
    worker.command(b"\x03", address, b"", b"two")
    assert client.peer.heard() == []
    worker.command(b"\x04", address, b"", b"three")
    assert client.peer.only()[-3:] == [b"one", b"two", b"three"]


def test_rfc_18_through_a_req_socket(rig: Rig) -> None:
    worker, client = worker_of(rig, RFC18), rig.peer(b"REQ")
    client.say(b"", b"MDPC02", b"\x01", b"echo", b"x")
    address, _ = worker.job()
    worker.command(b"\x04", address, b"", b"y")
    assert client.heard() == [[b"", b"MDPC02", b"\x03", b"echo", b"y"]]
    assert client.session.dialect == "rfc18-req"


# --- majortomo or libmdp?


def test_an_undecided_worker_gets_requests_and_no_heartbeat(rig: Rig) -> None:
    worker, client = undecided_of(rig), Speaker(rig, RFC18)
    rig.wait(7.0)
    assert worker.peer.heard() == []
    client.ask(b"echo", b"x")
    rig.wait(100)
    worker.job()
    assert worker.peer.session.dialect == "undecided"


@pytest.mark.parametrize(
    ("code", "rest", "dialect", "beat"),
    [
        (b"\x04", [], "libmdp", b"\x04"),
        (b"\x05", [], "majortomo", b"\x05"),
        (b"\x04", [b"undefined", b"", b"x"], "majortomo", b"\x05"),
    ],
)
def test_how_the_dialects_are_distinguished(rig: Rig, code: bytes, rest: Frames, dialect: str, beat: bytes) -> None:
    worker = undecided_of(rig)
    worker.command(code, *rest)
    assert worker.peer.session.dialect == dialect and worker.peer.heard() == []
    rig.wait(2.6)
    assert worker.peer.heard() == [[b"", b"MDPW02", beat]]


def test_a_final_with_an_address_means_majortomo_and_is_delivered_at_once(rig: Rig) -> None:
    worker, client = undecided_of(rig), Speaker(rig, MAJORTOMO)
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    worker.command(b"\x04", address, b"", b"y")
    assert client.peer.heard() == [[b"", b"MDPC02", b"\x04", b"y"]]
    assert worker.peer.session.dialect == "majortomo"


@pytest.mark.parametrize(
    ("code", "rest", "heard"),
    [
        (b"\x04", [], [[b"MDPC02", b"\x03", b"echo", b"first"]]),
        (b"\x05", [], [[b"MDPC02", b"\x02", b"echo", b"first"]]),
        (
            b"\x03",
            ["address", b"", b"next"],
            [[b"MDPC02", b"\x02", b"echo", b"first"], [b"MDPC02", b"\x02", b"echo", b"next"]],
        ),
        (
            b"\x04",
            ["address", b"", b"next"],
            [[b"MDPC02", b"\x02", b"echo", b"first"], [b"MDPC02", b"\x03", b"echo", b"next"]],
        ),
    ],
)
def test_a_first_03_is_held_until_the_next_message_decides(
    rig: Rig, code: bytes, rest: "list[str | bytes]", heard: list[Frames]
) -> None:
    worker, client = undecided_of(rig), Speaker(rig, RFC18)
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    worker.command(b"\x03", address, b"", b"first")
    rig.wait(2)
    assert client.peer.heard() == []
    worker.command(code, *(part if isinstance(part, bytes) else address for part in rest))
    assert client.peer.heard() == heard


def test_a_disconnect_after_a_held_03_means_majortomo_which_has_not_finished(rig: Rig) -> None:
    worker, client = undecided_of(rig), Speaker(rig, MAJORTOMO)
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    worker.command(b"\x03", address, b"", b"part")
    worker.command(b"\x06")
    assert client.peer.heard() == [[b"", b"MDPC02", b"\x03", b"part"]]
    assert worker.peer.heard() == [] and rig.notes.outcomes == ["interrupted"]


@pytest.mark.parametrize("dialect_name", ["majortomo", "libmdp"])
def test_a_setting_per_service_decides_at_ready(dialect_name: str) -> None:
    rig = Rig(Tuning(mdp2_dialects=PatternMap({"echo": dialect_name})))
    worker, client = Speaker(rig, DIALECTS[dialect_name]), Speaker(rig, DIALECTS[dialect_name])
    worker.command(b"\x01", b"echo")
    assert worker.peer.session.dialect == dialect_name
    rig.wait(2.6)
    assert worker.peer.heard() == [[b"", b"MDPW02", DIALECTS[dialect_name].heartbeat]]
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    worker.command(DIALECTS[dialect_name].from_final, address, b"", b"y")
    assert client.peer.only()[-1] == b"y"
    other = Speaker(rig, MAJORTOMO)
    other.command(b"\x01", b"untold")
    assert other.peer.session.dialect == "undecided"


def test_an_undecided_worker_with_an_invalid_message_is_closed_without_disconnect(rig: Rig) -> None:
    worker = undecided_of(rig)
    worker.command(b"\x01", b"echo")
    assert worker.peer.heard() == [] and rig.notes.violations == ["READY twice"]
    rig.wait(5.1)
    assert worker.peer.heard() == [] and worker.peer.closed == "closed after DISCONNECT"


def test_an_undecided_silent_worker_is_lost(rig: Rig) -> None:
    worker = undecided_of(rig)
    rig.wait(7.6)
    assert rig.broker.workers == {} and worker.peer.heard() == []
    worker.command(b"\x05")
    assert worker.peer.heard() == [[b"", b"MDPW02", b"\x06"]]


# --- invalid messages


@pytest.mark.parametrize(
    "frames",
    [
        [b"MDPC02", b"\x01"],
        [b"MDPC02", b"\x02", b"echo", b"x"],
        [b"MDPC02", b"\x01", b"n" * 256, b"x"],
        [b"MDPC02", b"\x01", b"", b"x"],
        [b"MDPC02", b"\x01", b""],
        [b"MDPC02", b"", b"echo", b"x"],
        [b"MDPW02", b"\x01"],
        [b"MDPW02", b"\x01", b"echo", b"more"],
        [b"MDPW02", b"\x03", b"client"],
        [b"MDPW02", b"\x04", b"client", b"no delimiter"],
        [b"MDPW02", b"\x05", b"more"],
        [b"MDPW02", b"\x07"],
        [b"MDPW02", b"", b"echo"],
        [b"MDPC01", b"\x01", b"echo", b"x"],
        [b"", b"MDPC02", b"\x01", b"echo", b"x"],
        [b"", b"MDPW02", b"\x01", b"echo"],
        [b""],
        [b"x"],
        [b"", b"", b""],
    ],
)
def test_an_invalid_message_ends_the_connection_that_sent_it(rig: Rig, frames: Frames) -> None:
    worker, client, bad = worker_of(rig, RFC18), Speaker(rig, RFC18), Speaker(rig, RFC18)
    bad.ask(b"mmi.service", b"echo")
    assert bad.peer.only()[-1] == b"200"
    bad.peer.say(*frames)
    assert bad.peer.closed.startswith("protocol violation: ") and bad.peer.heard() == []
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    worker.command(b"\x04", address, b"", b"others are served on")
    assert client.peer.only()[-1] == b"others are served on"


def test_a_lost_attempt_after_a_partial_ends_in_silence(rig: Rig) -> None:
    worker, client = worker_of(rig, RFC18), Speaker(rig, RFC18)
    client.ask(b"echo", b"x")
    address, _ = worker.job()
    worker.command(b"\x03", address, b"", b"part")
    worker.peer.lose()
    assert client.peer.heard() == [[b"MDPC02", b"\x02", b"echo", b"part"]]
    assert rig.notes.outcomes == ["interrupted"]


# --- a stream that ends without a last body


def test_an_empty_final_after_partials_adds_no_frame_for_clients_that_get_them_joined(rig: Rig) -> None:
    worker, client = worker_of(rig, RFC18), rig.peer(b"REQ")
    client.say(b"", b"MDPC01", b"echo", b"go")
    address, _ = worker.job()
    worker.command(b"\x03", address, b"", b"one")
    worker.command(b"\x04", address, b"", b"")
    assert client.heard() == [[b"", b"MDPC01", b"echo", b"one"]]


def test_an_empty_final_without_partials_is_the_reply(rig: Rig) -> None:
    worker, client = worker_of(rig, RFC18), rig.peer(b"REQ")
    client.say(b"", b"MDPC01", b"echo", b"go")
    worker.command(b"\x04", worker.job()[0], b"", b"")
    assert client.heard() == [[b"", b"MDPC01", b"echo", b""]]


def test_two_empty_frames_in_the_final_are_body(rig: Rig) -> None:
    worker, client = worker_of(rig, RFC18), rig.peer(b"REQ")
    client.say(b"", b"MDPC01", b"echo", b"go")
    address, _ = worker.job()
    worker.command(b"\x03", address, b"", b"one")
    worker.command(b"\x04", address, b"", b"", b"")
    assert client.heard() == [[b"", b"MDPC01", b"echo", b"one", b"", b""]]
