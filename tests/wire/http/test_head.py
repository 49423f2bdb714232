"""HTTP requests from bytes: every split, every limit, and the ways to smuggle a request."""

from urllib.parse import quote

import pytest

from polydomo import limits
from polydomo.wire.http.head import REASONS, HttpError, RequestHead, read_head, unquote
from polydomo.wire.http.reader import HEAD, MESSAGE, NEED_DATA, RequestReader

Seen = list[tuple[str, str, bytes]]


def read_all(pieces: list[bytes], max_body: int = limits.MAX_MESSAGE) -> Seen:
    reader = RequestReader(max_body)
    found: Seen = []
    for piece in pieces:
        reader.feed(piece)
        while (event := reader.next()) != NEED_DATA:
            if event == MESSAGE:
                assert reader.head is not None
                found.append((reader.head.method, reader.head.path, reader.body))
    return found


def refused(data: bytes, max_body: int = limits.MAX_MESSAGE) -> int:
    with pytest.raises(HttpError) as caught:
        read_all([data], max_body)
    return caught.value.status


PIPELINE = (
    b"POST /v1/call/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    b"POST /v1/call/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\nwiki\r\n5;ext=1\r\npedia\r\n0\r\nTrailer: x\r\n\r\n"
    b"\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
)
EXPECTED: Seen = [
    ("POST", "/v1/call/echo", b"hello"),
    ("POST", "/v1/call/echo", b"wikipedia"),
    ("GET", "/metrics", b""),
]


def test_requests_are_read_whole() -> None:
    assert read_all([PIPELINE]) == EXPECTED


@pytest.mark.parametrize("at", range(1, len(PIPELINE)))
def test_requests_are_read_for_any_split(at: int) -> None:
    assert read_all([PIPELINE[:at], PIPELINE[at:]]) == EXPECTED


def test_requests_are_read_byte_by_byte() -> None:
    assert read_all([PIPELINE[i : i + 1] for i in range(len(PIPELINE))]) == EXPECTED


def test_the_head_is_returned_before_the_body() -> None:
    reader = RequestReader()
    reader.feed(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert reader.next() == HEAD
    assert reader.head is not None and reader.head.expects_continue and reader.unread()
    assert reader.next() == NEED_DATA
    reader.feed(b"abcGET")
    assert reader.next() == MESSAGE and reader.body == b"abc"
    assert reader.rest() == b"GET"


def head(text: str) -> RequestHead:
    return read_head(text.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n")


def test_target_and_parameters_are_decoded() -> None:
    found = head("GET /v1/call/a%2Fb/c%C3%A4?wait=2%2E5&x=a+b HTTP/1.1\nHost: h")
    assert found.segments() == ["v1", "call", "a/b", "cä"]
    assert found.parameters() == {"wait": "2.5", "x": "a b"}
    assert head("GET http://h:5246/a?b=1 HTTP/1.1\nHost: h").path == "/a"
    assert head("OPTIONS * HTTP/1.1\nHost: h").path == "*"


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "%+1", "%ff", "a%c3"])
def test_malformed_escapes_are_rejected(text: str) -> None:
    with pytest.raises(HttpError) as caught:
        unquote(text)
    assert caught.value.status == 400


def test_quoting_is_undone() -> None:
    text = "a/b c%é\0"
    assert unquote(quote(text, safe="")) == text


def test_reasons_are_those_of_the_rfc_with_every_python() -> None:
    shown = [REASONS[status] for status in (200, 404, 413, 414, 422, 431)]
    assert shown == [
        "OK",
        "Not Found",
        "Content Too Large",
        "URI Too Long",
        "Unprocessable Content",
        "Request Header Fields Too Large",
    ]


def test_connection_options() -> None:
    assert head("GET / HTTP/1.1\nHost: h").keep_alive
    assert not head("GET / HTTP/1.1\nHost: h\nConnection: Close").keep_alive
    assert not head("GET / HTTP/1.0").keep_alive
    assert head("GET / HTTP/1.0\nConnection: keep-alive").keep_alive
    assert head("GET / HTTP/1.1\nHost: h\nConnection: keep-alive, Upgrade\nUpgrade: websocket").upgrade


def test_repeated_headers_are_joined_unless_they_may_not_repeat() -> None:
    assert head("GET / HTTP/1.1\nHost: h\nAccept: a\nAccept: b").headers["accept"] == "a, b"
    with pytest.raises(HttpError):
        head("GET / HTTP/1.1\nHost: h\nHost: g")


POST = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    ("status", "data"),
    [
        # request smuggling: two framings, or one that two readers could read differently
        (400, POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (400, POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        (400, POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        (400, POST + b"Content-Length: 3, 3\r\n\r\nabc"),
        (400, POST + b"Content-Length: +3\r\n\r\nabc"),
        (400, POST + b"Content-Length: 0x3\r\n\r\nabc"),
        (400, POST + b"Content-Length: -1\r\n\r\n"),
        (400, POST + b"Content-Length : 3\r\n\r\nabc"),
        (400, POST + b"Content-Length: 99999999999999999999\r\n\r\n"),
        (400, POST + b" Content-Length: 3\r\n\r\nabc"),
        (400, POST + b"X: a\r\n b\r\n\r\n"),
        (400, POST + b"X: a\nContent-Length: 3\r\n\r\nabc"),
        (400, POST + b"X: a\rContent-Length: 3\r\n\r\nabc"),
        (400, POST + b"X: \0\r\n\r\n"),
        (400, POST + b": a\r\n\r\n"),
        (400, POST + b"no colon\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n000000003\r\nabc\r\n0\r\n\r\n"),
        # what is not served
        (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: xchunked\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked, identity\r\n\r\n"),
        (501, b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (501, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
        (505, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
        (417, POST + b"Expect: 200-maybe\r\n\r\n"),
        # what is no request
        (400, b"GET / HTTP/1.1\r\n\r\n"),
        (400, b"GET /\r\n\r\n"),
        (400, b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET x HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET / a HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        # limits
        (414, b"GET /" + b"a" * limits.MAX_HTTP_TARGET + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * limits.MAX_HTTP_HEAD),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * limits.MAX_HTTP_HEAD + b"\r\n\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * (limits.MAX_HTTP_HEADERS + 1) + b"\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * limits.MAX_CHUNK_LINE),
        (431, POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: aaaaaaaaaaaaaaaa\r\n" * 1000),
        (431, POST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1;" + b"x" * 500 + b"\r\na\r\n") * 40),
    ],
)
def test_is_rejected(status: int, data: bytes) -> None:
    assert refused(data) == status


def test_bodies_over_the_limit_are_rejected() -> None:
    assert refused(POST + b"Content-Length: 11\r\n\r\n", max_body=10) == 413
    assert refused(POST + b"Transfer-Encoding: chunked\r\n\r\n6\r\naaaaaa\r\n5\r\n", max_body=10) == 413
    assert read_all([POST + b"Content-Length: 10\r\n\r\n" + b"a" * 10], max_body=10)[0][2] == b"a" * 10


def test_a_large_body_in_many_pieces() -> None:
    body = bytes(range(256)) * 4096
    data = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert read_all([data[i : i + 65536] for i in range(0, len(data), 65536)])[0][2] == body
    chunked = b"".join(b"%x\r\n" % 4096 + body[i : i + 4096] + b"\r\n" for i in range(0, len(body), 4096))
    data = POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n"
    assert read_all([data[i : i + 65536] for i in range(0, len(data), 65536)])[0][2] == body
