"""Decoding undoes encoding, and encoding undoes decoding where there is one right form."""

from hypothesis import given
from hypothesis import strategies as st

from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.protocols.memo import messages
from polydomo.wire import cbor, frames
from polydomo.wire.address import parse_url
from polydomo.wire.security.mechanism import parse_command, parse_properties, properties

names = st.text(min_size=1, max_size=30).map(str.encode)
items = st.recursive(
    st.one_of(st.integers(0, 2**64 - 1), st.binary(max_size=40), st.text(max_size=40), st.booleans()),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.binary(max_size=600), max_size=8))
def test_frames(parts: list[bytes]) -> None:
    body = frames.join(parts)
    assert frames.split(body) == parts
    assert frames.join(frames.split(body)) == body
    assert frames.count(body) == len(parts)


@given(st.lists(st.lists(st.binary(max_size=300), max_size=4), max_size=4))
def test_bodies_joined_have_the_frames_of_all(bodies: list[list[bytes]]) -> None:
    joined = frames.chain([frames.join(body) for body in bodies])
    assert frames.split(joined) == [part for body in bodies for part in body]


@given(
    st.lists(
        st.one_of(st.integers(0, 2**64 - 1), st.binary(max_size=40), st.text(max_size=40), st.booleans()), max_size=6
    )
)
def test_cbor(content: list[cbor.Item]) -> None:
    data = cbor.encode(content)
    assert cbor.read_header(data + b"payload", 0, len(data) + 7) == (content, len(data))


@given(st.lists(names, max_size=5), st.binary(min_size=1, max_size=16), st.integers(1, 2**32), st.binary(max_size=50))
def test_memo(services: list[bytes], worker: bytes, milliseconds: int, payload: bytes) -> None:
    ready = messages.ready(services)
    message = messages.parse(ready, 0, len(ready))
    assert message.kind == messages.READY and sorted(message.services) == sorted(set(services))
    for name in services[:1]:
        job = messages.job(worker, name, milliseconds) + payload
        message = messages.parse(job, 0, len(job))
        assert (message.kind, message.worker, message.service, message.timeout) == (
            messages.JOB,
            worker,
            name,
            milliseconds,
        )
        assert job[message.payload :] == payload
    for leaving in (True, False):
        result = messages.result(worker, leaving) + payload
        message = messages.parse(result, 0, len(result))
        assert (message.kind, message.worker, message.disconnecting) == (messages.RESULT, worker, leaving)
        assert result[message.payload :] == payload


@given(
    st.sampled_from([dbp.HEARTBEAT, dbp.DISCONNECT]),
    st.text(alphabet="abc.-", min_size=1, max_size=40),
    st.floats(0, 2e9),
)
def test_datagrams(command: bytes, name: str, now: float) -> None:
    for kind in (dbp.FLOAT, dbp.DOUBLE, dbp.DECIMAL, dbp.WHOLE):
        found = udp.read(udp.write(command, name, now, kind))
        assert found is not None and found[:2] == (command, name)


@given(st.integers(1, 65535))
def test_beacons(port: int) -> None:
    assert udp.read_beacon(udp.beacon(port)) == port


@given(st.integers(1, 65535), st.integers(0, 2**32 - 1))
def test_urls(port: int, host: int) -> None:
    text = f"tcp://{'.'.join(str(host >> shift & 255) for shift in (24, 16, 8, 0))}:{port}"
    assert str(parse_url(text)) == text


@given(
    st.dictionaries(
        st.text(alphabet="abcxyz-", min_size=1, max_size=20).map(str.encode), st.binary(max_size=40), max_size=5
    )
)
def test_zmtp_properties(found: dict[bytes, bytes]) -> None:
    assert parse_properties(properties(list(found.items()))) == found


@given(st.text(alphabet="ABC", min_size=1, max_size=20).map(str.encode), st.binary(max_size=60))
def test_zmtp_commands(name: bytes, content: bytes) -> None:
    assert parse_command(bytes((len(name),)) + name + content) == (name, content)
