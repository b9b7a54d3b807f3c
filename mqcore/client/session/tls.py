"""The TLS of a client's connections, from its settings."""

from __future__ import annotations

import ssl

from mqcore.client.settings.classes import ClientSettings
from mqcore.transport.client_tls import ClientTls


def context_of(settings: ClientSettings) -> ssl.SSLContext | None:
    """What all connections of a client go by; None when they are plain.

    Raises TlsError that names the file which cannot be used.
    """
    if isinstance(settings.tls, ssl.SSLContext):
        return settings.tls
    if not settings.tls:
        return None
    return ClientTls(
        settings.tls_ca_file,
        settings.tls_verify,
        settings.tls_check_hostname,
        settings.tls_cert_file,
        settings.tls_key_file,
        settings.tls_key_password,
    ).context()
