"""What both ends of a connection with TLS show and ask, from the settings: certificates, keys, who is trusted.

TLS 1.2 and 1.3. As in RocketMQ's test mode, which is its default, servers show a certificate that they have made for
themselves, and callers trust any. Source: RocketMQ remoting/netty/TlsHelper.java.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from mqcore.config import ClientAuth, TlsMode, TlsSettings
from mqcore.errors import TlsError
from mqcore.transport.pem import read_pem, reason_of

Made = TypeVar("Made")


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """A path at which *data* stands while this lasts, and which no other user can open: for what takes files only."""
    fd = os.memfd_create("mqcore-tls", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class ServerMaterial:
    """The bytes of a server's PEM files: what has once been found good serves on, whatever becomes of the files.

    Without a certificate the server makes one for itself. *trust* None asks clients for no certificate; empty, those
    that the system trusts.
    """

    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    password: str = field(default="", repr=False)
    trust: bytes | None = None
    requires: bool = False
    source: str = "self-signed"
    """Which files it is from, for messages."""

    @classmethod
    def read(cls, tls: TlsSettings) -> ServerMaterial:
        """Read the files that *tls* names, which are found to fit together. Raises TlsError that names the file."""
        if tls.test_mode_enable:
            return cls()
        is_asking = tls.server_auth_client and tls.server_need_client_auth is not ClientAuth.NONE
        material = cls(
            read_pem("tls.server.certPath", tls.server_cert_path),
            read_pem("tls.server.keyPath", tls.server_key_path),
            tls.server_key_password,
            trust_of("tls.server.trustCertPath", tls.server_trust_cert_path) if is_asking else None,
            tls.server_need_client_auth is ClientAuth.REQUIRE,
            f"{tls.server_cert_path}, {tls.server_key_path}",
        )
        material.context()
        return material

    @property
    def is_self_signed(self) -> bool:
        return not self.certificate

    def to_json(self) -> str:
        """Text that ``from_json`` makes the same of, in another process."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({name: _encoded(value) for name, value in values.items()})

    @classmethod
    def from_json(cls, text: str) -> ServerMaterial:
        values = json.loads(text)
        for name in ("certificate", "key", "trust"):
            if values[name] is not None:
                values[name] = base64.b64decode(values[name])
        return cls(**values)

    def use(self, make: Callable[[str, str, str, str | None, bool], Made]) -> Made:
        """Return what *make* makes of certificate, key, password, trusted ones and whether a client must show one.

        The first two are paths; the trusted are one, too, or "" for the system's, or None for nobody. Raises TlsError,
        with the names of the files, for what *make* cannot take.
        """
        from mqcore._fast.tls.self_signed import make as make_pair  # most never need it

        certificate, key = (self.certificate, self.key) if self.certificate else make_pair()
        with memory_file(certificate) as shown, memory_file(key) as hidden, memory_file(self.trust or b"") as trusted:
            trust = None if self.trust is None else trusted if self.trust else ""
            try:
                return make(shown, hidden, self.password, trust, self.requires)
            except (ssl.SSLError, TlsError) as error:
                raise TlsError(f"TLS of the server: {reason_of(error)} ({self.source})") from error

    def context(self) -> ssl.SSLContext:
        """What a server on Python's own ssl goes by. Raises TlsError."""
        return self.use(_server_context)


def _encoded(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _server_context(certificate: str, key: str, password: str, trust: str | None, requires: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Always a password: without one OpenSSL would ask at the terminal.
    context.load_cert_chain(certificate, key, password)
    if trust is not None:
        context.verify_mode = ssl.CERT_REQUIRED if requires else ssl.CERT_OPTIONAL
        _trust(context, trust)
    return context


def client_context(tls: TlsSettings) -> ssl.SSLContext | None:
    """What calls to other servers go by; None when they are plain.

    Names in certificates are not compared with addresses, as in RocketMQ: brokers register with theirs, and few
    certificates have them. Raises TlsError that names the file.
    """
    if not tls.use_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if tls.test_mode_enable or not tls.client_auth_server:
        context.verify_mode = ssl.CERT_NONE
    else:
        trust = trust_of("tls.client.trustCertPath", tls.client_trust_cert_path)
        with memory_file(trust) as path:
            _trusted(context, path if trust else "", tls.client_trust_cert_path)
    if not tls.test_mode_enable and tls.client_cert_path:
        _show(context, tls.client_cert_path, tls.client_key_path, tls.client_key_password)
    return context


def _show(context: ssl.SSLContext, certificate: str, key: str, password: str) -> None:
    read_pem("tls.client.certPath", certificate)
    read_pem("tls.client.keyPath", key)
    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        raise TlsError(f"TLS of calls: {reason_of(error)} ({certificate}, {key})") from error


def _trusted(context: ssl.SSLContext, path: str, shown: str) -> None:
    try:
        _trust(context, path)
    except ssl.SSLError as error:
        raise TlsError(f"TLS of calls: {reason_of(error)} ({shown})") from error


def _trust(context: ssl.SSLContext, path: str) -> None:
    if path:
        context.load_verify_locations(path)
    else:
        context.load_default_certs()


def trust_of(name: str, path: str) -> bytes:
    """The authorities in a PEM file; empty, for those of the system, when none is named."""
    return read_pem(name, path) if path else b""


def is_served(tls: TlsSettings) -> bool:
    """Whether the ports know TLS at all."""
    return tls.server_mode is not TlsMode.DISABLED
