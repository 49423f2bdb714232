"""MemoDB's REST API for the commands of ``polydomo memo``, at the address of the broker."""

import http.client
import json
import ssl
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

from polydomo.cli.inspect.browse import page_of
from polydomo.errors import AccessDenied, CallFailed, CallTimeout, NoSuchService, NotConnected, SettingError

JSON = "application/json"
OCTETS = "application/octet-stream"
POLL = 20  # seconds that the broker is asked to hold an evaluation before the next question


class MemoApi:
    """One connection. Raises NotConnected, CallTimeout, NoSuchService for what is not in the store, and CallFailed."""

    def __init__(self, url: str, code: str, timeout: float) -> None:
        """``code`` is a one-time login code, if the broker has access control."""
        page = urlsplit(page_of(url))
        host, port = page.hostname or "", page.port
        self.url = url
        self._cookie = ""
        if page.scheme == "https":
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=tls_of(url)
            )
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout)
        if code:
            self._cookie = self._log_in(code)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def put(self, content: bytes, media: str = JSON) -> str:
        """Stores a Node; returns its CID."""
        _, headers, _ = self.ask("POST", "/cid", content, {"Content-Type": media})
        return headers.get("location", "").removeprefix("/cid/")

    def get(self, path: str, accept: str = JSON) -> bytes:
        return self.ask("GET", path, accept=accept)[2]

    def names(self, path: str) -> list[str]:
        """A list of paths."""
        found: list[str] = json.loads(self.get(path))
        return found

    def link(self, path: str) -> str:
        """The CID that a head or a stored call has."""
        return str(json.loads(self.get(path))["cid"])

    def set_head(self, name: str, cid: str) -> None:
        self.ask("PUT", head_path(name), json.dumps({"cid": cid}).encode(), {"Content-Type": JSON})

    def evaluate(self, path: str, timeout: float) -> str | None:
        """Asks for the result of a call, whose CID it returns; None if it is not there yet."""
        options = json.dumps({"map": {"timeout": {"float": repr(timeout)}}}).encode()
        wait = max(1, min(POLL, int(timeout)))
        headers = {"Content-Type": JSON, "Prefer": f"wait={wait}"}
        status, _, content = self.ask("POST", f"{path}/evaluate", options, headers)
        return str(json.loads(content)["cid"]) if status == 200 else None

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, accept: str = JSON
    ) -> tuple[int, dict[str, str], bytes]:
        status, answered, content = self._exchange(method, path, body, {"Accept": accept, **(headers or {})})
        if status >= 400:
            raise problem(status, content)
        return status, answered, content

    def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        sent = {**headers, **({"Cookie": self._cookie} if self._cookie else {})}
        try:
            self._http.request(method, path, body or None, sent)
            response = self._http.getresponse()
            content = response.read()
        except TimeoutError:
            raise CallTimeout(f"{self.url}: no answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            raise NotConnected(f"{self.url}: {error or type(error).__name__}") from None
        return response.status, {name.lower(): value for name, value in response.getheaders()}, content

    def _log_in(self, code: str) -> str:
        status, headers, content = self._exchange("POST", "/v1/session", code.encode(), {"Content-Type": "text/plain"})
        if status >= 400:
            raise problem(status, content)
        return headers.get("set-cookie", "").split(";")[0]


def problem(status: int, content: bytes) -> Exception:
    """The error for an answer of the broker (RFC 9457)."""
    try:
        document: dict[str, Any] = json.loads(content)
    except ValueError:
        document = {}
    text = str(document.get("detail") or document.get("title") or f"status {status}")
    if status == 404:
        return NoSuchService(text)
    if status in (401, 403):
        return AccessDenied("400", text)
    if status == 504:
        return CallTimeout(text)
    if status == 406:
        return SettingError("--raw: the Node is not a byte string")
    return CallFailed(
        str(document.get("code") or document.get("type") or status).replace(":", "/").rpartition("/")[2], text
    )


def tls_of(url: str) -> ssl.SSLContext | None:
    from polydomo.client.security import proof_of, target

    proof = proof_of(target(url))
    return proof.tls_context if proof is not None else None


def head_path(name: str) -> str:
    return f"/head/{quote(name, safe='/')}"


def call_path(function: str, arguments: list[str]) -> str:
    return f"/call/{quote(function, safe='')}/{','.join(arguments)}"
