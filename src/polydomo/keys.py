"""Key files on disk: reading certificates, and writing secrets that only their owner can read."""

import os
from pathlib import Path

from polydomo.errors import SettingError
from polydomo.wire.security.curve import KeyPair, new_pair
from polydomo.wire.security.keys import format_certificate, parse_certificate, parse_key
from polydomo.wire.security.sodium import public_key

PUBLIC_SUFFIX = ".key"
SECRET_SUFFIX = ".key_secret"


def read_pair(path: str | Path, setting: str) -> KeyPair:
    """Reads a certificate file with a secret key. Raises SettingError that names the ``setting``."""
    certificate = parse_certificate(_read(Path(path), setting), f"{setting}: {path}")
    if not certificate.secret:
        raise SettingError(f"{setting}: {path} has no secret-key; use the file that ends in {SECRET_SUFFIX}")
    if public_key(certificate.secret) != certificate.public:
        raise SettingError(
            f"{setting}: the two keys in {path} do not belong together: the file is damaged, or it was edited"
        )
    return KeyPair(certificate.public, certificate.secret)


def read_public(value: str, setting: str, directory: Path | None = None) -> bytes:
    """Reads a public key: from a certificate file, relative to ``directory``, or from 40 Z85 characters."""
    path = Path(value) if directory is None else directory / value
    try:
        there = path.is_file()
    except OSError:  # a key is not always a valid file name
        there = False
    if there:
        return parse_certificate(_read(path, setting), f"{setting}: {path}").public
    try:
        return parse_key(value, setting)
    except SettingError:
        raise SettingError(f"{setting}: {value!r} is neither a file nor a key of 40 Z85 characters") from None


def write_pair(directory: Path, name: str) -> tuple[Path, Path]:
    """Creates a key pair and writes ``NAME.key`` and ``NAME.key_secret``. Raises SettingError if either file exists."""
    public, secret = directory / f"{name}{PUBLIC_SUFFIX}", directory / f"{name}{SECRET_SUFFIX}"
    for path in (public, secret):
        if path.exists():
            raise SettingError(f"{path} already exists; choose another name, or remove it first")
    pair = new_pair(os.urandom)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_private(secret, format_certificate(pair.public, pair.secret, name).encode())
        public.write_text(format_certificate(pair.public, name=name), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"cannot write to {directory}: {error.strerror or error}") from None
    return public, secret


def write_private(path: Path, content: bytes) -> None:
    """Creates a file that only its owner can read. It must not exist yet."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)


def readable_by_others(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o077)


def _read(path: Path, setting: str) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise SettingError(f"{setting}: cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"{setting}: {path} is not UTF-8 text") from None
