"""The whole error tree.

Few classes, by what the caller does next. Each class says once which response code it becomes on the wire and whether
the same request may be tried again. All state is in ``args``, so that every error pickles between processes.
"""

from __future__ import annotations

from typing import ClassVar


class MQError(Exception):
    """Root of every error that mqcore raises on purpose. It answers SYSTEM_ERROR unless a subclass says otherwise."""

    response_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False


class ConfigError(MQError, ValueError):
    """A setting is unknown, malformed or out of range. The start stops and names the key."""


# The store: what the bytes on disk say, and what the disk says.


class StoreError(MQError):
    """The store cannot do what was asked."""


class CorruptRecordError(StoreError):
    """Bytes in the commit log contradict the layout. Recovery truncates here; reads answer SYSTEM_ERROR."""

    def __init__(self, reason: str, physical_offset: int) -> None:
        super().__init__(reason, physical_offset)

    @property
    def physical_offset(self) -> int:
        return int(self.args[1])

    def __str__(self) -> str:
        return f"{self.args[0]} (physical_offset={self.args[1]})"


class CorruptFileError(StoreError):
    """A file of the store has the wrong size, name or header. The start stops and names the file."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(reason, path)

    def __str__(self) -> str:
        return f"{self.args[0]} (path={self.args[1]})"


class OffsetOutOfRangeError(StoreError):
    """A queue offset or physical offset lies outside what the store holds."""

    def __init__(self, what: str, got: int, minimum: int, maximum: int) -> None:
        super().__init__(what, got, minimum, maximum)

    def __str__(self) -> str:
        what, got, minimum, maximum = self.args
        return f"{what} {got} is outside [{minimum}, {maximum}]"


class MessageIllegalError(StoreError):
    """The message breaks a limit of the record layout (body, topic, properties, whole record)."""

    response_code = 13


class StoreNotWritableError(StoreError):
    """The store refuses writes: disk full, a failed sync, shut down, or a slave. The message says which."""

    response_code = 14
    retryable = True


class StoreLockedError(StoreError):
    """Another process, ours or a Java broker, holds the store directory."""


# The protocol: what a peer sent.


class ProtocolError(MQError):
    """A peer sent bytes that are not the protocol."""


class FrameError(ProtocolError):
    """The frame's lengths or serialize type are impossible. The connection is closed without a reply."""


class HeaderError(ProtocolError):
    """A header field is missing or is not of its type."""

    def __init__(self, field: str, got: str, wanted: str, where: str = "") -> None:
        super().__init__(field, got, wanted, where)

    def __str__(self) -> str:
        field, got, wanted, where = self.args
        return f"header field {field}: got {got}, wanted {wanted}" + (f" ({where})" if where else "")


# Remoting: what happened to a connection or a call.


class RemotingError(MQError):
    """A call did not get its answer."""

    retryable = True


class RemotingConnectError(RemotingError):
    """The peer could not be connected."""


class RemotingSendError(RemotingError):
    """The connection broke before or while the request was written."""


class RemotingTimeoutError(RemotingError, TimeoutError):
    """No answer came in time; whether the request took effect is unknown."""


class RemotingTooMuchRequestError(RemotingError):
    """The in-flight limit of this client is reached."""


class BrokerError(MQError):
    """A broker or name server answered with a code that means no."""

    def __init__(self, code: int, remark: str, address: str = "") -> None:
        super().__init__(code, remark, address)

    @property
    def code(self) -> int:
        return int(self.args[0])

    @property
    def remark(self) -> str:
        return str(self.args[1])

    @property
    def address(self) -> str:
        return str(self.args[2])

    def __str__(self) -> str:
        code, remark, address = self.args
        return f"CODE: {code} DESC: {remark}" + (f" BROKER: {address}" if address else "")


class ClientError(MQError):
    """The client refused before anything was sent: bad argument, wrong state, no route."""


# Processes: what happened to a worker.


class WorkerError(MQError):
    """A worker process could not start, died, or lost its parent."""
