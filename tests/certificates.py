"""Certificates for tests, made with the openssl program: an authority, a server and clients."""

import shutil
import subprocess
from pathlib import Path

import pytest


class Authority:
    """Signs certificates. Each is one PEM file with certificate and key."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.key = directory / f"{name}.key.pem"
        self.file = directory / f"{name}.pem"
        openssl(
            *"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(),
            *("-keyout", str(self.key), "-out", str(self.file), "-subj", f"/CN={name}"),
        )

    def certificate(self, name: str, *alternatives: str) -> Path:
        """A certificate whose subject is CN=name; ``alternatives`` such as DNS:localhost or IP:127.0.0.1."""
        whole = self.directory / f"{name}.pem"
        key, request, cert, extra = (self.directory / f"{name}.{suffix}" for suffix in ("k", "csr", "crt", "ext"))
        openssl(
            *"req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(),
            *("-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}/O=Lab"),
        )
        extra.write_text("subjectAltName=" + ",".join(alternatives or (f"DNS:{name}",)))
        openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.file), "-CAkey", str(self.key)),
            *("-CAcreateserial", "-days", "2", "-out", str(cert), "-extfile", str(extra)),
        )
        whole.touch(0o600)
        whole.write_bytes(cert.read_bytes() + key.read_bytes())
        return whole


def openssl(*words: str) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (on Debian: apt install openssl)")
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
