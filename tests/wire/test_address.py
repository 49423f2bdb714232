import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import SettingError
from polydomo.limits import MAX_IPC_PATH
from polydomo.model.retry_policy import Backoff
from polydomo.wire.address import IPC, TCP, Address, is_loopback, parse_url


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:5246", Address(TCP, host="127.0.0.1", port=5246)),
        ("tcp://[::1]:5246", Address(TCP, host="::1", port=5246)),
        ("tcp://[fe80::1%eth0]:1", Address(TCP, host="fe80::1%eth0", port=1)),
        ("tcp://localhost:0", Address(TCP, host="localhost", port=0)),
        ("tcp://broker-1.my_net.example:65535", Address(TCP, host="broker-1.my_net.example", port=65535)),
        ("tcp://*:5246", Address(TCP, host="*", port=5246)),
        ("tcp://127.0.0.1:*", Address(TCP, host="127.0.0.1", port=0)),
        ("ipc:///run/polydomo.sock", Address(IPC, path="/run/polydomo.sock")),
        ("ipc://polydomo.sock", Address(IPC, path="polydomo.sock")),
        ("ipc:///tmp/with space:and:colons", Address(IPC, path="/tmp/with space:and:colons")),
    ],
)
def test_good(text: str, address: Address) -> None:
    assert parse_url(text) == address
    assert parse_url(str(address)) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no scheme"),
        ("localhost:5246", "did you mean tcp://localhost:5246?"),
        ("7402", "no scheme; did you mean tcp://127.0.0.1:7402?"),
        (":7402", "no scheme; did you mean tcp://127.0.0.1:7402?"),
        ("localhost", "no scheme; did you mean tcp://localhost:5246?"),
        ("::1", "no scheme; write tcp://HOST:PORT"),
        ("/run/polydomo.sock", "no scheme; did you mean ipc:///run/polydomo.sock?"),
        ("unix:///run/polydomo.sock", "does not know 'unix://'; did you mean ipc:///run/polydomo.sock?"),
        ("http://localhost:80", "does not know 'http://'; did you mean tcp://localhost:80?"),
        ("http://user:word@broker:7402/v1/call?x=1", "does not know 'http://'; did you mean tcp://broker:7402?"),
        ("https://broker", "does not know 'https://'; did you mean tcp://broker:5246?"),
        ("TCP://localhost:80", "does not know 'TCP://'; did you mean tcp://localhost:80?"),
        ("tcp://", "the port is missing; write tcp://HOST:PORT"),
        ("tcp://localhost", "the port is missing; did you mean tcp://localhost:5246?"),
        ("tcp://[::1]", "the port is missing; did you mean tcp://[::1]:5246?"),
        ("tcp://:5246", "the host is missing"),
        ("tcp://localhost:", "'' is not a port"),
        ("tcp://localhost:65536", "'65536' is not a port; write a number from 0 to 65535"),
        ("tcp://localhost:-1", "'-1' is not a port"),
        ("tcp://localhost:5246/", "a path follows the port; did you mean tcp://localhost:5246?"),
        ("tcp://localhost:x/", "'x/' is not a port"),
        ("tcp://localhost:٣", "is not a port"),
        ("tcp://localhost:000001", "is not a port"),
        ("tcp://127.0.0.1:1,tcp://127.0.0.1:2", "these are several addresses"),
        ("tcp://a:1,b:2", "these are several addresses"),
        ("tcp://::1:5246", "in brackets: tcp://[::1]:PORT"),
        ("tcp://[::g]:5246", "'::g' is not an IPv6 address"),
        ("tcp://[127.0.0.1]:5246", "'127.0.0.1' is not an IPv6 address"),
        ("tcp://256.0.0.1:5246", "'256.0.0.1' is not an IPv4 address"),
        ("tcp://127.1:5246", "'127.1' is not an IPv4 address"),
        ("tcp://my host:5246", "'my host' is not a host"),
        ("tcp://user@host:5246", "'user@host' is not a host"),
        ("tcp://a..b:5246", "'a..b' is not a host"),
        ("tcp://-a:5246", "'-a' is not a host"),
        ("tcp://" + "a" * 254 + ":1", "is not a host"),
        ("ipc://", "the path is missing"),
        ("ipc:///tmp/", "not the path of a socket"),
        ("ipc:///a\0b", "not the path of a socket"),
        ("ipc://@abstract", "abstract sockets are not served"),
        ("ipc:///" + "é" * 60, f"the path has 121 bytes; the limit is {MAX_IPC_PATH}"),
    ],
)
def test_bad(text: str, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_url(text)
    assert says in str(caught.value)
    assert repr(text) in str(caught.value)


def test_longest_path() -> None:
    path = "/" + "a" * (MAX_IPC_PATH - 1)
    assert parse_url(f"ipc://{path}").path == path
    with pytest.raises(SettingError):
        parse_url(f"ipc://{path}a")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("https://broker:7402", "tls+tcp://broker:7402"),
        ("wss://broker/v1/ws", "tls+tcp://broker:5246"),
        ("tls+tcp://broker", "tls+tcp://broker:5246"),
        ("ws://broker:7402", "tcp://broker:7402"),
    ],
)
def test_a_client_is_told_the_address_it_probably_meant(text: str, meant: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_url(text, connect=True)
    assert str(caught.value).endswith(f"did you mean {meant}?")
    parse_url(meant, connect=True)


@pytest.mark.parametrize(
    ("text", "says"), [("tcp://*:5246", "only for listening"), ("tcp://localhost:0", "only for listening")]
)
def test_not_to_be_connected_to(text: str, says: str) -> None:
    parse_url(text)
    with pytest.raises(SettingError, match=says):
        parse_url(text, connect=True)


def test_connectable() -> None:
    assert parse_url("tcp://localhost:5246", connect=True).port == 5246
    assert parse_url("ipc:///a", connect=True).path == "/a"


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://[::ffff:127.0.0.1]:1", True),
        ("tcp://LocalHost:1", True),
        ("tcp://localhost.:1", True),
        ("ipc:///a", True),
        ("tcp://*:1", False),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://[::ffff:10.0.0.1]:1", False),
        ("tcp://10.0.0.1:1", False),
        ("tcp://localhost.example:1", False),
        ("tcp://broker:1", False),
    ],
)
def test_loopback(text: str, loopback: bool) -> None:
    assert is_loopback(parse_url(text)) is loopback


@given(st.one_of(st.text(), st.text(alphabet="tcpi:/[]*.0159@%-a").map(lambda rest: "tcp://" + rest)))
def test_any_text_is_an_address_or_a_setting_error(text: str) -> None:
    try:
        address = parse_url(text)
    except SettingError:
        return
    assert parse_url(str(address)) == address


@pytest.mark.parametrize("value", [parse_url("tcp://127.0.0.1:5246"), Backoff(3, first=0.5)])
def test_values_of_the_libraries_can_be_copied_and_pickled(value: object) -> None:
    """A program may send them to another process, for example to a task of Spark. Frozen dataclasses that are compiled do not allow it."""
    for made in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert made == value and type(made) is type(value)
