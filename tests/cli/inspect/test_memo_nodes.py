"""``polydomo memo put``, ``get``, ``call``, ``evaluate``, ``heads`` and ``refs``, as a shell runs them."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.cli.shell import Broker, complaint, run


def memo(broker: Broker, *words: str, stdin: bytes = b"") -> bytes:
    result = run("memo", *words, "--to", broker.url, stdin=stdin)
    assert result.returncode == 0, result.stderr
    return result.stdout


def line(broker: Broker, *words: str) -> str:
    return memo(broker, *words).decode().removesuffix("\n")


def test_nodes_come_back_as_they_were(broker: Broker) -> None:
    small = line(broker, "put", '{"map": {"n": 2}}')
    assert json.loads(line(broker, "get", small)) == {"map": {"n": 2}}
    large = line(broker, "put", json.dumps(["x" * 1000, {"cid": small}]))
    assert json.loads(line(broker, "get", f"/cid/{large}"))[1] == {"cid": small}
    assert json.loads(line(broker, "get", large, "--depth", "1"))[1] == {"node": {"map": {"n": 2}}}
    assert line(broker, "refs", large, "--links") == small


def test_the_rest_api_has_the_same_nodes(broker: Broker) -> None:
    cid = line(broker, "put", '"text"')
    page = broker.url.replace("tcp", "http")
    with urllib.request.urlopen(f"{page}/cid/{cid}") as answer:
        assert json.load(answer) == "text"


def test_bytes(broker: Broker) -> None:
    content = bytes(range(256)) * 100
    cid = memo(broker, "put", "--raw", "--head", "a/picture", "-", stdin=content).decode().strip()
    assert memo(broker, "get", "/head/a/picture", "--raw") == content
    assert memo(broker, "get", cid, "--raw") == content
    assert set(json.loads(line(broker, "get", cid))) == {"base64"}


def test_heads(broker: Broker) -> None:
    one, two = line(broker, "put", "1"), line(broker, "put", "2")
    assert line(broker, "heads") == ""
    line(broker, "heads", "first", one)
    line(broker, "put", "2", "--head", "second")
    assert line(broker, "heads") == f"first  {one}\nsecond  {two}"
    assert line(broker, "heads", "first", two) == two
    assert json.loads(line(broker, "heads", "--json")) == {"first": two, "second": two}
    assert line(broker, "refs", two) == "/head/first\n/head/second"
    assert line(broker, "refs", one) == ""


def test_an_evaluation_runs_once(broker: Broker, tmp_path: Path) -> None:
    with broker.worker("shout", "--", "sh", "-c", f"echo ran >>{tmp_path}/runs; tr a-z A-Z"):
        for _ in range(2):
            assert memo(broker, "evaluate", "shout", '"hello"', '"you"', "--raw") == b"HELLOYOU"
        assert (tmp_path / "runs").read_text() == "ran\n"
        assert memo(broker, "call", "shout", '"hello"', '"you"', "--raw") == b"HELLOYOU"
        assert json.loads(line(broker, "call", "shout", '"hello"', '"you"')) == {"base64": "SEVMTE9ZT1U="}
        result = line(broker, "evaluate", "shout", '"hello"', '"you"', "--cid")
        hello, you = line(broker, "put", '"hello"'), line(broker, "put", '"you"')
        assert line(broker, "call", "shout", hello, you, "--cid") == result
        path = f"/call/shout/{hello},{you}"
        assert line(broker, "call", "shout") == path
        assert line(broker, "refs", result) == path
        assert line(broker, "refs", you) == path


def test_an_evaluation_without_a_worker(broker: Broker) -> None:
    result = run("memo", "evaluate", "nothing", "1", "--timeout", "1", "--to", broker.url)
    assert result.returncode in (3, 4)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["get", "/head/nothing"], 4, "unknown head 'nothing'"),
        (["call", "add", "1"], 4, "the call has no result in the store"),
        (["get", "xyz"], 1, "'xyz'"),
        (["put", "{"], 1, ""),
        (["put", "-"], 1, ""),
        (["evaluate", "add"], 2, "ARG: a call has one argument or more"),
        (["heads", "a", "xyz"], 1, ""),
    ],
)
def test_mistakes(broker: Broker, words: list[str], status: int, text: str) -> None:
    result = run("memo", *words, "--to", broker.url)
    assert (result.returncode, text in complaint(result)) == (status, True), result.stderr


def test_raw_needs_a_byte_string(broker: Broker) -> None:
    cid = line(broker, "put", "[1]")
    result = run("memo", "get", cid, "--raw", "--to", broker.url)
    assert (result.returncode, complaint(result)) == (2, "--raw: the Node is not a byte string")


def test_no_broker() -> None:
    result = run("memo", "put", "1", "--to", "tcp://127.0.0.1:1")
    assert result.returncode == 5
    assert complaint(result).startswith("no broker answers at tcp://127.0.0.1:1")


def test_the_example_of_the_page(broker: Broker) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    cid = line(broker, "put", '{"map": {"width": 640}}', "--head", "settings")
    assert f"--head settings\n{cid}\n" in page
    assert f"memo get /head/settings\n{line(broker, 'get', '/head/settings')}\n" in page


def test_with_access_control(tmp_path: Path) -> None:
    """The commands log in over HTTP with a one-time code, which they get with the caller's key."""
    for words in (("keys", "new", "server"), ("keys", "new", "alice"), ("keys", "new", "eve"), ("access", "init")):
        assert run(*words, cwd=tmp_path).returncode == 0
    with Broker(tmp_path / "data", "--access", str(tmp_path / "access.toml")) as broker:
        put = ("memo", "put", "1", "--to", broker.url, "--server-key", "server.key")
        result = run(*put, "--key", "alice.key_secret", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (0, b"uAXEAAQE\n"), result.stderr
        refused = run(*put, "--key", "eve.key_secret", cwd=tmp_path)
        assert refused.returncode != 0
        assert len(complaint(refused)) > 0
