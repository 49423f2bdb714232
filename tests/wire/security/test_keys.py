"""Keys as text: Z85, and certificate files as pyzmq writes and reads them."""

from pathlib import Path

import pytest
import zmq.auth
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from polydomo.errors import SettingError
from polydomo.wire.security.curve import new_pair
from polydomo.wire.security.keys import decode_z85, encode_z85, format_certificate, parse_certificate, parse_key
from tests.wire.security.curve_rig import Dice


@given(st.binary(max_size=40).filter(lambda data: len(data) % 4 == 0))
def test_z85_is_that_of_pyzmq(data: bytes) -> None:
    text = encode_z85(data)
    assert decode_z85(text) == data
    if data:
        assert text.encode() == z85.encode(data)


@pytest.mark.parametrize("text", ["abcd", "abcd ", "#####", "\xe4bcde", '"bcde'])
def test_invalid_z85(text: str) -> None:
    with pytest.raises(ValueError):
        decode_z85(text)


def test_files_of_pyzmq_are_read(tmp_path: Path) -> None:
    public_file, secret_file = zmq.auth.create_certificates(str(tmp_path), "alice", {"email": "alice@example.com"})
    public, secret = zmq.auth.load_certificate(secret_file)
    assert secret is not None
    theirs = parse_certificate(Path(secret_file).read_text(), secret_file)
    assert (encode_z85(theirs.public).encode(), encode_z85(theirs.secret).encode()) == (public, secret)
    assert parse_certificate(Path(public_file).read_text(), public_file).secret == b""


def test_our_files_are_read_by_pyzmq(tmp_path: Path) -> None:
    pair = new_pair(Dice())
    path = tmp_path / "alice.key_secret"
    path.write_text(format_certificate(pair.public, pair.secret, "alice"))
    assert zmq.auth.load_certificate(path) == (z85.encode(pair.public), z85.encode(pair.secret))
    path.write_text(format_certificate(pair.public, name="alice"))
    assert zmq.auth.load_certificate(path) == (z85.encode(pair.public), None)


def test_errors_about_a_key_file_do_not_contain_keys() -> None:
    one, two = new_pair(Dice(1)), new_pair(Dice(2))
    mixed = format_certificate(one.public, two.secret)
    for text, match in (
        ("", "is not a CURVE certificate"),
        ('curve\n    public-key = "too short"', "40 Z85"),
        (mixed, "do not match"),
        (format_certificate(one.public) * 2, "more than one"),
    ):
        with pytest.raises(SettingError, match=match) as error:
            parse_certificate(text, "x.key")
        assert str(error.value).startswith("x.key") and encode_z85(two.secret) not in str(error.value)


def test_a_key_without_a_file() -> None:
    assert len(parse_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "x")) == 32
    for text in ("", "rq:rM", "alice.key", " " * 40):
        with pytest.raises(SettingError, match="x must be a key"):
            parse_key(text, "x")


def test_secrets_are_not_shown() -> None:
    pair = new_pair(Dice())
    certificate = parse_certificate(format_certificate(pair.public, pair.secret), "x")
    assert encode_z85(pair.secret) not in repr(certificate)
