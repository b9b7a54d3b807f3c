"""What a failed call says of the broker that it went to."""

from __future__ import annotations

from mqcore.client.errors import BrokerNotFoundError
from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError, RemotingConnectError, RemotingError, RemotingSendError
from mqcore.protocol.names import NOT_MASTER


def is_not_stored(error: Exception) -> bool:
    """Whether it is certain that a broker has not done what it was asked, because it could not: another one may."""
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE and NOT_MASTER in error.remark
    return isinstance(error, RemotingConnectError | BrokerNotFoundError)


def is_gone(error: Exception) -> bool:
    """Whether *error* says that a broker is not there, or is not what it was: its route is worth a question."""
    return isinstance(error, RemotingSendError) or is_not_stored(error)


def is_doubtful(error: Exception) -> bool:
    """Whether the route may have changed: as ``is_gone``, or the broker is silent, or cannot serve."""
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return isinstance(error, RemotingError)
