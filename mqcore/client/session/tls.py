"""The TLS of a client's connections, from its settings."""

from __future__ import annotations

import ssl

from mqcore.client.settings.classes import ClientSettings
from mqcore.errors import TlsError
from mqcore.remoting.pem import read_pem, reason_of


def context_of(settings: ClientSettings) -> ssl.SSLContext | None:
    """What all connections of a client go by; None when they are plain.

    Raises TlsError that names the file which cannot be used.
    """
    if isinstance(settings.tls, ssl.SSLContext):
        return settings.tls
    if not settings.tls:
        return None
    if settings.tls_ca_file is not None:
        read_pem("tls_ca_file", settings.tls_ca_file)
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
    except ssl.SSLError as error:
        raise TlsError(f"tls_ca_file: {reason_of(error)} ({settings.tls_ca_file})") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.tls_verify and settings.tls_check_hostname
    if not settings.tls_verify:
        context.verify_mode = ssl.CERT_NONE
    if settings.tls_cert_file is not None:
        _show(context, settings.tls_cert_file, settings.tls_key_file or settings.tls_cert_file, settings)
    return context


def _show(context: ssl.SSLContext, certificate: str, key: str, settings: ClientSettings) -> None:
    read_pem("tls_cert_file", certificate)
    read_pem("tls_key_file", key)
    try:
        # Always a password: without one OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, settings.tls_key_password or "")
    except ssl.SSLError as error:
        raise TlsError(f"tls_cert_file and tls_key_file: {reason_of(error)} ({certificate}, {key})") from error
