"""The access file: which principals may connect, how they authenticate, and their rights.

It is read and checked as a whole: ``load`` returns everything or raises SettingError with every problem it found, so that reloading an
invalid file keeps the old rules.
"""

import contextlib
import hashlib
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polydomo.broker.guard.rules import ADMIN, ANYTHING, RIGHTS, AccessRule, AccessRules, Quota
from polydomo.errors import AccessDenied, SettingError
from polydomo.keys import read_pair, read_public, readable_by_others
from polydomo.server.settings.acceptance import EVERYWHERE, NOWHERE, Acceptance, read_acceptance
from polydomo.server.settings.toml_file import read_toml
from polydomo.wire.address import Address
from polydomo.wire.security.curve import KeyPair

ANONYMOUS = "anonymous"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_QUOTAS = ("connections", "open_requests", "held_bytes", "requests_per_second")
_SUBJECT = {"CN": "commonName", "O": "organizationName", "OU": "organizationalUnitName", "EMAIL": "emailAddress"}
_ALTERNATIVE = {"DNS": "DNS", "URI": "URI", "SAN-EMAIL": "email"}


@dataclass(frozen=True)
class TlsFiles:
    """The files of a TLS listener; ``ca`` is empty if client certificates are not accepted."""

    cert: str
    key: str
    ca: str = ""


@dataclass
class Credentials:
    """Maps credentials to principals."""

    curve: dict[bytes, str] = field(default_factory=dict)
    tokens: dict[bytes, str] = field(default_factory=dict)  # by SHA-256
    certificates: list[tuple[tuple[tuple[str, str], ...], str]] = field(default_factory=list)
    uids: dict[int, str] = field(default_factory=dict)

    def of(self, principal: str) -> frozenset[object]:
        """All credentials of a principal."""
        tables: tuple[Mapping[Any, str], ...] = (self.curve, self.tokens, self.uids)
        found: set[object] = {
            (i, proof) for i, table in enumerate(tables) for proof, name in table.items() if name == principal
        }
        return frozenset(found | {parts for parts, name in self.certificates if name == principal})

    def by_curve(self, key: bytes) -> str:
        """Raises AccessDenied."""
        name = self.curve.get(key)
        if name is None:
            raise AccessDenied("400", "no principal in the access file has this CURVE key")
        return name

    def by_token(self, token: str) -> str | None:
        return self.tokens.get(hashlib.sha256(token.encode(errors="surrogateescape")).digest())

    def by_password(self, user: str, password: str) -> str:
        """PLAIN: the user is the principal's name and the password its token. Raises AccessDenied."""
        name = self.by_token(password)
        if name is None or name != user:
            raise AccessDenied("400", "no principal in the access file has this name and token")
        return name

    def by_certificate(self, peer: Mapping[str, Any]) -> str | None:
        """``peer`` is what ``ssl.SSLObject.getpeercert`` returns for a verified certificate."""
        subject = {(key, value) for part in peer.get("subject", ()) for key, value in part}
        subject |= {("SAN " + key, value) for key, value in peer.get("subjectAltName", ())}
        for wanted, name in self.certificates:
            if all(pair in subject for pair in wanted):
                return name
        return None


@dataclass
class AccessFile:
    """A whole access file, checked."""

    path: Path
    rules: AccessRules
    credentials: Credentials
    curve: KeyPair | None = None
    tls: TlsFiles | None = None
    anonymous: Acceptance = NOWHERE  # where peers without credentials are accepted
    plain: Acceptance = EVERYWHERE  # where PLAIN is accepted, from this machine or inside TLS
    files: tuple[Path, ...] = ()  # every file that was read; a change to one of them triggers a reload
    warnings: tuple[str, ...] = ()


def load(path: str | Path, listeners: Sequence[Address] | None = None) -> AccessFile:
    """Reads and checks the file and all files it refers to. ``listeners`` are those of the broker, if there is one. Raises SettingError
    with every problem."""
    path = Path(path)
    return _AccessFileReader(path, read_toml(path, "access"), listeners).read()


def named_files(path: Path) -> list[Path]:
    """The keys and certificates that an access file names, also those that are missing. Raises SettingError if it is not TOML."""
    reader = _AccessFileReader(path, read_toml(path, "access"), None)
    with contextlib.suppress(SettingError):
        reader.read()
    return reader.files[1:]


class _AccessFileReader:
    """Reads a file in one pass and collects the problems."""

    def __init__(self, path: Path, table: dict[str, Any], listeners: Sequence[Address] | None) -> None:
        self.path = path
        self.listeners = listeners
        self.table = table
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.files = [path]
        self.credentials = Credentials()

    def read(self) -> AccessFile:
        self._known(self.table, ("server", "principals", "groups", "allow", "quotas"), "")
        server = self._table(self.table.get("server", {}), "server")
        self._known(server, ("curve", "tls", "anonymous", "plain"), "server.")
        anonymous = self._acceptance(server, "anonymous", NOWHERE)
        plain = self._acceptance(server, "plain", EVERYWHERE)
        curve = self._server_key(server.get("curve"))
        tls = self._tls(server.get("tls"))
        principals = self._principals(bool(anonymous))
        groups = self._groups(principals)
        rules = self._rules(principals, groups)
        quotas = self._quotas(principals, groups)
        if curve is None and self.credentials.curve and "curve" not in server:
            self._wrong(
                "server.curve: is missing, but principals have CURVE keys; create it with `polydomo keys new server`"
            )
        if tls is None and self.credentials.certificates and "tls" not in server:
            self._wrong("server.tls: is missing, but principals have certificates")
        if tls is not None and not tls.ca and self.credentials.certificates:
            self._wrong(
                "server.tls.ca: is missing, but principals have certificates; set it to the authority that signs them"
            )
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            error = SettingError(f"access: {self.path}: {self.problems[0]}{more}")
            error.problems = list(self.problems)
            raise error
        return AccessFile(
            self.path,
            AccessRules(principals, rules, quotas, groups),
            self.credentials,
            curve,
            tls,
            anonymous,
            plain,
            tuple(self.files),
            tuple(self.warnings),
        )

    # --- [server] -------------------------------------------------------------------------------------------------------

    def _acceptance(self, server: Mapping[str, object], key: str, default: Acceptance) -> Acceptance:
        if key not in server:
            return default
        try:
            return read_acceptance(server[key], self.listeners)
        except SettingError as error:
            self._wrong(f"server.{key}: {error}")
            return EVERYWHERE  # so that rules that name the principal are not reported as well

    def _server_key(self, value: object) -> KeyPair | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self._wrong('server.curve: must be the name of a file, such as "server.key_secret"')
            return None
        path = self._file(value)
        try:
            pair = read_pair(path, "server.curve")
        except SettingError as error:
            self._wrong(str(error))
            return None
        if readable_by_others(path):
            self.warnings.append(f"server.curve: other users can read {path}; run `chmod 600 {path}`")
        return pair

    def _tls(self, value: object) -> TlsFiles | None:
        if value is None:
            return None
        table = self._table(value, "server.tls")
        self._known(table, ("cert", "key", "ca"), "server.tls.")
        found: dict[str, str] = {}
        for key in ("cert", "key", "ca"):
            name = table.get(key, table.get("cert") if key == "key" else "")
            if not isinstance(name, str) or (key != "ca" and not name):
                self._wrong(f"server.tls.{key}: must be the name of a PEM file")
            elif name:
                path = self._file(name)
                try:
                    path.open("rb").close()
                    found[key] = str(path)
                except OSError as error:
                    self._wrong(f"server.tls.{key}: cannot read {path}: {error.strerror or error}")
        if "cert" not in found or "key" not in found:
            return None
        if readable_by_others(Path(found["key"])):
            self.warnings.append(f"server.tls.key: other users can read {found['key']}; run `chmod 600 {found['key']}`")
        return TlsFiles(found["cert"], found["key"], found.get("ca", ""))

    # --- [principals] and [groups] --------------------------------------------------------------------------------------

    def _principals(self, anonymous: bool) -> list[str]:
        found = [ANONYMOUS] if anonymous else []
        for name, value in self._table(self.table.get("principals", {}), "principals").items():
            where = f"principals.{name}"
            if not _NAME.fullmatch(name) or name == ANONYMOUS:
                self._wrong(f"{where}: a name has 1 to 64 letters, digits and . _ @ -, and is not {ANONYMOUS!r}")
                continue
            found.append(name)
            table = self._table(value, where)
            self._known(table, ("curve", "certificate", "token_sha256", "uid"), where + ".")
            for proof in self._several(table.get("curve")):
                self._curve_key(proof, name, where + ".curve")
            for proof in self._several(table.get("certificate")):
                self._certificate(proof, name, where + ".certificate")
            for proof in self._several(table.get("token_sha256")):
                self._token(proof, name, where + ".token_sha256")
            for proof in self._several(table.get("uid")):
                self._uid(proof, name, where + ".uid")
        return found

    def _curve_key(self, value: object, name: str, where: str) -> None:
        if not isinstance(value, str):
            self._wrong(f"{where}: must be a certificate file or a key of 40 Z85 characters")
            return
        try:
            key = read_public(value, where, self.path.parent)
        except SettingError as error:
            self._wrong(str(error))
            self._file(value)
            return
        if (self.path.parent / value).is_file():
            self._file(value)
        self._add(self.credentials.curve, key, name, where)

    def _certificate(self, value: object, name: str, where: str) -> None:
        wanted: list[tuple[str, str]] = []
        for part in value.split(",") if isinstance(value, str) else []:
            key, _, text = part.strip().partition("=")
            known = _SUBJECT.get(key.upper()) or (
                "SAN " + _ALTERNATIVE[key.upper()] if key.upper() in _ALTERNATIVE else ""
            )
            if known and text:
                wanted.append((known, text))
            else:
                wanted = []
                break
        if not wanted:
            self._wrong(f'{where}: must be parts of a subject, such as "CN=render-pool" or "CN=render-pool,O=Lab"')
            return
        pairs = tuple(wanted)
        for other, owner in self.credentials.certificates:
            if other == pairs and owner != name:
                self._wrong(f"{where}: is also the certificate of {owner}")
                return
        self.credentials.certificates.append((pairs, name))

    def _token(self, value: object, name: str, where: str) -> None:
        if not isinstance(value, str) or not _SHA256.fullmatch(value.lower()):
            self._wrong(f"{where}: must be 64 hexadecimal digits; `polydomo keys token {name}` prints them")
            return
        self._add(self.credentials.tokens, bytes.fromhex(value), name, where)

    def _uid(self, value: object, name: str, where: str) -> None:
        if isinstance(value, str):
            try:
                value = pwd.getpwnam(value).pw_uid
            except KeyError:
                self._wrong(f"{where}: there is no user {value!r} on this machine")
                return
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self._wrong(f"{where}: must be a user's number or name")
            return
        self._add(self.credentials.uids, value, name, where)

    def _add(self, table: dict[Any, str], proof: object, name: str, where: str) -> None:
        owner = table.setdefault(proof, name)
        if owner != name:
            self._wrong(f"{where}: is also a credential of {owner}; each credential belongs to one principal")

    def _groups(self, principals: list[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, members in self._table(self.table.get("groups", {}), "groups").items():
            if name in principals:
                self._wrong(f"groups.{name}: is also the name of a principal")
            if not isinstance(members, list):
                self._wrong(f"groups.{name}: must be a list of principals")
                continue
            for member in members:
                if member not in principals:
                    self._wrong(f"groups.{name}: unknown principal {member!r}")
            found[name] = [member for member in members if member in principals]
        return found

    # --- [[allow]] and [quotas] -----------------------------------------------------------------------------------------

    def _rules(self, principals: list[str], groups: Mapping[str, Iterable[str]]) -> list[AccessRule]:
        allow = self.table.get("allow", [])
        if not isinstance(allow, list):
            self._wrong("allow: rules are written as [[allow]]")
            return []
        found = []
        for number, value in enumerate(allow, 1):
            where = f"allow (rule {number})"
            table = self._table(value, where)
            self._known(table, ("who", *RIGHTS), f"{where}: ")
            who: set[str] = set()
            if not isinstance(table.get("who"), list) or not table["who"]:
                self._wrong(f"{where}: who must be a list of principals and groups")
            else:
                for name in table["who"]:
                    if isinstance(name, str) and name in groups:
                        who |= set(groups[name])
                    elif name in principals:
                        who.add(name)
                    else:
                        self._wrong(f"{where}: unknown principal or group {name!r}{self._hint(name)}")
            rights = {right: self._globs(table[right], right, where) for right in RIGHTS if right in table}
            rights = {right: globs for right, globs in rights.items() if globs}
            if not rights and not any(right in table for right in RIGHTS):
                self._wrong(f"{where}: allows nothing; rights are {', '.join(RIGHTS)}")
            found.append(AccessRule(number, who, rights))
        return found

    def _hint(self, name: object) -> str:
        return "; server.anonymous is false" if name == ANONYMOUS else ""

    def _globs(self, value: object, right: str, where: str) -> tuple[str, ...]:
        if value is True:
            return ANYTHING
        if value is False:
            return ()
        if right == ADMIN:
            self._wrong(f"{where}: admin must be true or false")
            return ()
        if not isinstance(value, list) or not all(isinstance(glob, str) and glob for glob in value):
            self._wrong(f'{where}: {right} must be true or a list of names, such as ["resize", "lint.*"]')
            return ()
        return tuple(value)

    def _quotas(self, principals: list[str], groups: Mapping[str, object]) -> dict[str, Quota]:
        found = {}
        for name, value in self._table(self.table.get("quotas", {}), "quotas").items():
            where = f"quotas.{name}"
            if name not in principals and name not in groups:
                self._wrong(f"{where}: unknown principal or group {name!r}")
            table = self._table(value, where)
            self._known(table, _QUOTAS, where + ".")
            numbers: dict[str, Any] = {}
            for key in _QUOTAS:
                number = table.get(key, 0)
                whole = key != "requests_per_second"
                if isinstance(number, bool) or not isinstance(number, int if whole else (int, float)) or number < 0:
                    self._wrong(f"{where}.{key}: must be a number, 0 or more; 0 is no limit")
                else:
                    numbers[key] = number
            found[name] = Quota(**numbers)
        return found

    # --- helpers --------------------------------------------------------------------------------------------------------

    def _wrong(self, problem: str) -> None:
        self.problems.append(problem)

    def _file(self, name: str) -> Path:
        path = self.path.parent / name
        self.files.append(path)
        return path

    def _table(self, value: object, where: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self._wrong(f"{where}: must be a table")
        return {}

    def _known(self, table: dict[str, Any], names: tuple[str, ...], where: str) -> None:
        for name in table:
            if name not in names:
                self._wrong(f"{where}{name}: unknown key; the keys are {', '.join(names)}")

    def _several(self, value: object) -> list[object]:
        """One credential, or a list of them. To replace a key, a principal has both for a while."""
        return [] if value is None else list(value) if isinstance(value, list) else [value]
