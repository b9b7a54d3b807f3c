"""One line at the start of a server that anybody may reach, and that lets anybody do anything."""

from __future__ import annotations

import ipaddress
import logging

from mqcore.config import Program, Settings, TlsMode

logger = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches who listens on *host*."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def notice(settings: Settings, program: Program, address: str) -> str | None:
    """Return what is to be said of a server at *address*; None if it is guarded, or out of others' reach."""
    if is_loopback(settings.mqcore.bind_address) or settings.tls.server_mode is TlsMode.ENFORCING:
        return None
    if program is Program.BROKER and settings.broker.acl_enable:
        return None
    guards = "access control (aclEnable) and TLS (tls.server.mode=enforcing)"
    if program is Program.NAMESRV:
        guards = "TLS (tls.server.mode=enforcing)"
    return (
        f"the {program} listens on {address} without {guards}: whoever reaches it may read and change everything; "
        "see docs/security.md, or set bindAddress=127.0.0.1"
    )


def warn_if_exposed(settings: Settings, program: Program, address: str) -> None:
    """Say so in the log."""
    text = notice(settings, program, address)
    if text is not None:
        logger.warning("%s", text)
