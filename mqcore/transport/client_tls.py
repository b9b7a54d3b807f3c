"""What a client shows and asks for on connections with TLS, from the files that its settings name."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from mqcore.errors import TlsError
from mqcore.transport.pem import read_pem, reason_of


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS 1.2 or 1.3. All files are PEM files; a key stands in a file of its own or in that of its certificate."""

    ca_file: str | None = None
    """The authorities to trust; the system's when absent."""
    verify: bool = True
    check_hostname: bool = True
    cert_file: str | None = None
    """What is shown to servers that ask for a certificate."""
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)

    def context(self, name_of: Callable[[str], str] = "tls_{}".format) -> ssl.SSLContext:
        """Return what connections go by. Raises TlsError that says which file cannot be used.

        *name_of* gives the name by which the program knows the setting of a field.
        """
        if self.ca_file is not None:
            read_pem(name_of("ca_file"), self.ca_file)
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except ssl.SSLError as error:
            raise TlsError(f"{name_of('ca_file')}: {reason_of(error)} ({self.ca_file})") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify and self.check_hostname
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            self._show(context, self.cert_file, self.key_file or self.cert_file, name_of)
        return context

    def _show(self, context: ssl.SSLContext, certificate: str, key: str, name_of: Callable[[str], str]) -> None:
        read_pem(name_of("cert_file"), certificate)
        read_pem(name_of("key_file"), key)
        try:
            # Always a password: without one OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key, self.key_password or "")
        except ssl.SSLError as error:
            both = f"{name_of('cert_file')} and {name_of('key_file')}"
            raise TlsError(f"{both}: {reason_of(error)} ({certificate}, {key})") from error
