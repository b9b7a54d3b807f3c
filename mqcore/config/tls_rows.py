"""TLS, by the keys of RocketMQ's TlsSystemConfig. There they are system properties, or in a file."""

from __future__ import annotations

from mqcore.config.choices import ClientAuth, TlsMode
from mqcore.config.table import (
    SECRET,
    Computed,
    Context,
    Group,
    Program,
    Setting,
    Unit,
    choice,
    flag,
    in_group,
    number,
    text,
)


def _is_enforcing(context: Context) -> bool:
    return context.known["tls.server.mode"] == TlsMode.ENFORCING


def _within(row: Setting) -> Setting:
    """*row* named without the prefix that the group has already."""
    return row._replace(name=row.name.removeprefix("tls_"))


TLS = (
    text(
        "tls.config.file",
        "/etc/rocketmq/tls.properties",
        "properties file with any of the keys below; a file that is not there says nothing",
    ),
    choice(
        "tls.server.mode tlsMode",
        TlsMode.PERMISSIVE,
        "what the ports let in: disabled, only plain connections; permissive, both, told apart by the first byte;"
        " enforcing, only TLS",
    ),
    flag(
        "tls.test.mode.enable",
        True,
        "certificates are not used: the servers show one that they have made for themselves, and calls to other servers"
        " trust any",
    ),
    choice(
        "tls.server.need.client.auth",
        ClientAuth.NONE,
        "whether clients are asked for a certificate, and must have one; needs tls.server.authClient",
    ),
    text("tls.server.keyPath", "", "PEM file with the servers' private key"),
    text("tls.server.keyPassword", "", "password of that key", SECRET),
    text("tls.server.certPath", "", "PEM file with the servers' certificate, and those that lead to its authority"),
    flag("tls.server.authClient", False, "clients' certificates are checked"),
    text(
        "tls.server.trustCertPath",
        "",
        "PEM file with the authorities of clients' certificates; empty: those that the system trusts",
    ),
    text("tls.client.keyPath", "", "PEM file with the private key that is shown to other servers"),
    text("tls.client.keyPassword", "", "password of that key", SECRET),
    text("tls.client.certPath", "", "PEM file with the certificate that is shown to other servers"),
    flag(
        "tls.client.authServer", False, "certificates of other servers are checked, as in RocketMQ without their names"
    ),
    text(
        "tls.client.trustCertPath",
        "",
        "PEM file with the authorities of other servers' certificates; empty: those that the system trusts",
    ),
    number(
        "tlsHandshakeTimeoutMillis",
        10_000,
        "a connection whose TLS handshake takes longer is closed",
        unit=Unit.MS,
        minimum=100,
    ),
)

CLIENT = (
    flag(
        "useTLS tls.enable",
        Computed("true if tls.server.mode is enforcing", _is_enforcing),
        "calls to name servers, and of a slave to its master, have TLS",
    ),
)

ROWS = in_group(Group.TLS, (*map(_within, TLS), *CLIENT), Program.BROKER, Program.NAMESRV)
