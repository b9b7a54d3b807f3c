"""Settings that are one of a few words."""

from __future__ import annotations

from enum import StrEnum


class BrokerRole(StrEnum):
    """What a broker is to its replicas."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class TlsMode(StrEnum):
    """What a port lets in: only plain connections, both, only TLS."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether a server asks for its client's certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class FlushDiskType(StrEnum):
    """Whether an acknowledgement waits for the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"
