"""The access file: the result of a valid file, and every problem of an invalid one."""

import hashlib
import os
from pathlib import Path

import pytest

from polydomo.errors import AccessDenied, SettingError
from polydomo.keys import read_pair, write_pair
from polydomo.server.access.access import AccessControl, Identity
from polydomo.server.access.file import ANONYMOUS, AccessFile, load
from polydomo.server.settings.acceptance import Origin
from polydomo.wire.address import parse_url

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
TOKEN = "a token"

# The file of the issue, and of docs/security.md.
WHOLE = f"""
[server]
curve = "server.key_secret"
anonymous = false

[principals.alice]
curve = "alice.key"
uid = {os.getuid()}
[principals.render-pool]
curve = "{KEY}"
[principals.ci]
token_sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
[groups]
ops = ["alice"]

[[allow]]
who = ["alice", "ci"]
call = ["resize", "lint.*"]
[[allow]]
who = ["render-pool"]
offer = ["resize"]
publish = ["log.*"]
[[allow]]
who = ["ops"]
admin = true
[quotas.ci]
open_requests = 100
requests_per_second = 50
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("server", "alice"):
        write_pair(tmp_path, name)
    return tmp_path


def read(directory: Path, text: str) -> AccessFile:
    path = directory / "access.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def problems(directory: Path, text: str) -> list[str]:
    with pytest.raises(SettingError) as error:
        read(directory, text)
    assert str(directory) in str(error.value)
    return error.value.problems


def test_a_whole_file(directory: Path) -> None:
    access = read(directory, WHOLE)
    alice, server = (read_pair(directory / f"{name}.key_secret", "x") for name in ("alice", "server"))
    assert access.curve is not None and access.curve.public == server.public and not access.anonymous
    credentials = access.credentials
    assert credentials.by_curve(alice.public) == "alice"
    assert credentials.by_token(TOKEN) == "ci" and credentials.by_token("another") is None
    assert credentials.by_password("ci", TOKEN) == "ci"
    assert credentials.uids == {os.getuid(): "alice"}
    with pytest.raises(AccessDenied):
        credentials.by_curve(server.public)
    with pytest.raises(AccessDenied):
        credentials.by_password("alice", TOKEN)
    assert access.rules.allowed_by("alice", "call", "lint.python") == 1
    assert access.rules.allowed_by("alice", "offer", "anything") == 3
    assert access.rules.allowed_by("render-pool", "offer", "resize") == 2
    assert access.rules.quota("ci").requests_per_second == 50
    assert {path.name for path in access.files} == {"access.toml", "server.key_secret", "alice.key"}
    assert access.warnings == ()


def test_anonymous_peers_only_of_this_machine(directory: Path) -> None:
    file = directory / "access.toml"
    file.write_text('[server]\nanonymous = "local"\n[[allow]]\nwho = ["anonymous"]\ncall = ["echo"]\n')
    access = AccessControl(str(file))
    assert access.lookup(None, Origin(local=True)) == ANONYMOUS and access.lookup(None, Origin(local=False)) is None
    assert Identity(access, private=True, max_frame=1000).principal() == ANONYMOUS
    far = Identity(access, private=False, max_frame=1000)
    with pytest.raises(AccessDenied):
        far.principal()
    far.private = True  # as inside TLS: encrypted, and still from another machine
    with pytest.raises(AccessDenied):
        far.principal()


def test_anonymous_peers_of_listed_listeners(directory: Path) -> None:
    file = directory / "access.toml"
    file.write_text('[server]\nanonymous = ["ipc:///tmp/a.sock"]\nplain = ["tcp://[::1]:5246"]\n')
    listeners = [parse_url(url) for url in ("tcp://0.0.0.0:5246", "tcp://[::1]:5246", "ipc:///tmp/a.sock")]
    access = AccessControl(str(file), listeners)
    wide, own, ipc = (Origin(local=True, listener=listener) for listener in listeners)
    assert [access.lookup(None, origin) for origin in (wide, own, ipc)] == [None, None, ANONYMOUS]
    assert [access.file.plain.accepts(origin) for origin in (wide, own, ipc)] == [False, True, False]
    with pytest.raises(
        AccessDenied, match=r"does not allow anonymous peers on tcp://0.0.0.0:5246 \(server.anonymous\)"
    ):
        Identity(access, private=True, max_frame=1000, listener=listeners[0]).principal()
    with pytest.raises(SettingError) as error:
        AccessControl(str(file), listeners[:2])
    assert str(error.value).endswith(
        "server.anonymous: the broker does not listen on ipc:///tmp/a.sock; "
        "its listeners are tcp://0.0.0.0:5246, tcp://[::1]:5246"
    )
    assert load(file).anonymous.listeners == (listeners[2],), "without a broker, any address is accepted"


def test_anonymous_is_a_principal_if_the_file_allows_it(directory: Path) -> None:
    text = '[server]\nanonymous = true\n[[allow]]\nwho = ["anonymous"]\ncall = ["echo"]\n'
    access = read(directory, text)
    assert access.rules.allowed_by(ANONYMOUS, "call", "echo") == 1
    (problem,) = problems(directory, text.replace("true", "false"))
    assert problem == "allow (rule 1): unknown principal or group 'anonymous'; server.anonymous is false"


def test_an_empty_file_allows_nothing(directory: Path) -> None:
    access = read(directory, "")
    assert access.rules.allowed_by(ANONYMOUS, "call", "echo") == 0 and access.curve is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[servers]\n", "servers: unknown key; the keys are server, principals, groups, allow, quotas"),
        ("server = 3\n", "server: must be a table"),
        ('[server]\ncurve = "gone.key_secret"\n', "server.curve: cannot read"),
        ('[server]\ncurve = "server.key"\n', "has no secret-key"),
        ('[server]\nanonymous = "yes"\n', 'server.anonymous: must be true, false, "local" or a list of listeners'),
        ("[server]\nanonymous = [3]\n", "server.anonymous: must be true"),
        ('[server]\nplain = ["127.0.0.1:5246"]\n', "server.plain: '127.0.0.1:5246' is not an address"),
        ('[server]\ntls = { cert = "gone.pem" }\n', "server.tls.cert: cannot read"),
        ('[server]\ntls = "x"\n', "server.tls: must be a table"),
        ('[principals.alice]\ncurve = "alice.key"\n', "server.curve: is missing"),
        ('[principals.alice]\ncertificate = "CN=alice"\n', "server.tls: is missing"),
        ('[principals.alice]\ncertificate = "alice"\n', 'such as "CN=render-pool"'),
        ('[principals.alice]\ncurve = "nothing"\n', "neither a file nor a key"),
        ('[principals.alice]\ntoken_sha256 = "abc"\n', "64 hexadecimal digits"),
        ('[principals.alice]\npassword = "x"\n', "principals.alice.password: unknown key"),
        ('[principals.alice]\nuid = "no such user"\n', "there is no user"),
        ("[principals.alice]\nuid = -1\n", "must be a user's number or name"),
        ("[principals.anonymous]\n", "is not 'anonymous'"),
        ('[principals."a b"]\n', "letters, digits"),
        ('[groups]\nops = ["nobody"]\n', "groups.ops: unknown principal 'nobody'"),
        ("[groups]\nops = 3\n", "must be a list of principals"),
        ("[principals.a]\n[groups]\na = []\n", "groups.a: is also the name of a principal"),
        ("allow = 3\n", "rules are written as [[allow]]"),
        ("[[allow]]\ncall = true\n", "who must be a list"),
        ('[principals.a]\n[[allow]]\nwho = ["a"]\n', "allows nothing"),
        ('[principals.a]\n[[allow]]\nwho = ["a"]\ncal = true\n', "cal: unknown key"),
        ('[principals.a]\n[[allow]]\nwho = ["a"]\ncall = "echo"\n', "must be true or a list of names"),
        ('[principals.a]\n[[allow]]\nwho = ["a"]\nadmin = ["echo"]\n', "admin must be true or false"),
        ("[quotas.nobody]\nconnections = 1\n", "unknown principal or group 'nobody'"),
        ("[principals.a]\n[quotas.a]\nconnections = -1\n", "must be a number, 0 or more"),
        ("[principals.a]\n[quotas.a]\nfiles = 1\n", "files: unknown key"),
    ],
)
def test_every_problem_is_named(directory: Path, text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(directory, text))


def test_two_principals_with_one_proof(directory: Path) -> None:
    for proof in ('curve = "alice.key"', f'token_sha256 = "{"0" * 64}"', "uid = 0", 'certificate = "CN=x"'):
        found = problems(directory, f"[principals.a]\n{proof}\n[principals.b]\n{proof}\n")
        assert any("principals.b" in problem and "a" in problem for problem in found)


def test_all_problems_are_found_and_the_first_is_reported(directory: Path) -> None:
    found = problems(directory, '[x]\n[y]\n[[allow]]\nwho = ["z"]\ncall = true\n')
    assert len(found) == 3
    with pytest.raises(SettingError, match=r"x: unknown key.*\(and 2 more\)"):
        load(directory / "access.toml")


@pytest.mark.parametrize("text", ["\xff", "[["])
def test_invalid_toml(directory: Path, text: str) -> None:
    (directory / "access.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingError, match=r"access\.toml is not"):
        load(directory / "access.toml")
    with pytest.raises(SettingError, match="cannot read"):
        load(directory / "gone.toml")


def test_a_secret_key_that_others_can_read_is_a_warning(directory: Path) -> None:
    (directory / "server.key_secret").chmod(0o644)
    (warning,) = read(directory, WHOLE).warnings
    assert "chmod 600" in warning


def test_certificates_by_parts_of_their_subject(directory: Path) -> None:
    (directory / "ca.pem").write_text("")
    (directory / "server.pem").touch(0o600)
    text = '[server]\ntls = { cert = "server.pem", ca = "ca.pem" }\n'
    text += '[principals.pool]\ncertificate = ["CN=pool,O=Lab", "DNS=pool.example"]\n'
    credentials = read(directory, text).credentials
    subject = ((("commonName", "pool"),), (("organizationName", "Lab"),))
    assert credentials.by_certificate({"subject": subject}) == "pool"
    assert credentials.by_certificate({"subject": subject[:1]}) is None
    assert credentials.by_certificate({"subjectAltName": (("DNS", "pool.example"),)}) == "pool"
    assert credentials.by_certificate({}) is None
    found = problems(directory, text.replace(', ca = "ca.pem"', ""))
    assert "server.tls.ca: is missing" in found[0]
