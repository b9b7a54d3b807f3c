"""Keys and certificates made for one test by the command ``openssl``: an authority, and what it signs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OPENSSL: Final = shutil.which("openssl")
NO_OPENSSL: Final = "no command openssl"
NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
LOOPBACK: Final = "subjectAltName=IP:127.0.0.1,DNS:localhost"


def run(*arguments: str | Path) -> None:
    assert OPENSSL is not None, NO_OPENSSL
    done = subprocess.run([OPENSSL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"openssl {arguments}: {done.stderr}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path
    password: str = ""

    def server_settings(self, **more: str) -> dict[str, str]:
        """The settings of a server that shows it; more of them with ``_`` for dots."""
        return {
            "tls.test.mode.enable": "false",
            "tls.server.certPath": str(self.certificate),
            "tls.server.keyPath": str(self.key),
            **({"tls.server.keyPassword": self.password} if self.password else {}),
            **{f"tls.server.{name.replace('_', '.')}": value for name, value in more.items()},
        }


class Authority:
    """Signs what is asked of it; its files lie in *directory*."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._count = 0
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        subject = ("-subj", f"/CN={name}", "-days", "2")
        run("req", "-x509", *NEW_KEY, "-nodes", "-keyout", self._key, "-out", self.certificate, *subject)

    def sign(self, subject: str = "/O=mqcore/CN=server", *, days: int = 2, password: str = "") -> Pair:
        """A new pair for 127.0.0.1 and localhost; with -1 *days* it is over already."""
        self._count += 1
        stem = self._directory / f"{self.certificate.stem}-{self._count}"
        key, request, certificate = (stem.with_suffix(end) for end in (".key", ".csr", ".pem"))
        lock = ("-passout", f"pass:{password}") if password else ("-nodes",)
        run("req", *NEW_KEY, *lock, "-keyout", key, "-out", request, "-subj", subject, "-addext", LOOPBACK)
        signer = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-copy_extensions", "copy")
        run("x509", "-req", "-in", request, *signer, "-out", certificate, "-days", str(days))
        return Pair(certificate, key, password)

    def client(self, pair: Pair | None = None) -> ssl.SSLContext:
        """A client's context that trusts this authority only, and shows *pair*."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key, pair.password or None)
        return context


def trusting() -> ssl.SSLContext:
    """A client's context that trusts anybody, as RocketMQ's clients in test mode."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
