"""Every error that a client can raise: its own, and those of mqcore.errors that brokers and connections cause.

What the client finds wrong itself, before or instead of an answer from a broker, is a ClientError; a broker's refusal
is a BrokerError, a call without an answer a RemotingError, and ``except MQError`` catches them all. It does not catch a
MisuseError, which only another program would avoid. ``client_code`` is the number that RocketMQ's clients give the same
failure; it never travels.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from mqcore.codes import ClientErrorCode, ResponseCode
from mqcore.delay_levels import level_of
from mqcore.errors import (
    ArgumentError,
    BaseMQError,
    BrokerBusyError,
    BrokerError,
    BrokerUnavailableError,
    ClientClosedError,
    ClientError,
    ClientStateError,
    ConfigError,
    GroupNotFoundError,
    MessageRefusedError,
    MisuseError,
    MQError,
    NoRouteError,
    NotSupportedError,
    PermissionDeniedError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
    SubscriptionError,
    SubscriptionNotReadyError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from mqcore.client.model.receipt import SendReceipt

__all__ = [
    "ArgumentError",
    "BaseMQError",
    "BatchPartlySentError",
    "BrokerBusyError",
    "BrokerError",
    "BrokerNotFoundError",
    "BrokerUnavailableError",
    "ClientClosedError",
    "ClientError",
    "ClientStateError",
    "ConfigError",
    "CreateReplyError",
    "GroupNotFoundError",
    "InvalidBodyError",
    "InvalidMessageError",
    "MQError",
    "MessageRefusedError",
    "MisuseError",
    "NoNameServerError",
    "NoRouteError",
    "NotFoundError",
    "NotSupportedError",
    "PermissionDeniedError",
    "ProducerFullError",
    "Reject",
    "RemotingConnectError",
    "RemotingError",
    "RemotingSendError",
    "RemotingTimeoutError",
    "RemotingTooMuchRequestError",
    "RequestTimeoutError",
    "Retry",
    "SendFailedError",
    "SendForbiddenError",
    "SubscriptionError",
    "SubscriptionNotReadyError",
    "TopicNotFoundError",
]


class NoNameServerError(ClientError):
    """No name server address was given."""

    client_code: ClassVar[int] = ClientErrorCode.NO_NAME_SERVER_EXCEPTION
    hint = "give the client host:port, or set NAMESRV_ADDR"


class BrokerNotFoundError(ClientError):
    """The broker name is in no route, or has no address of the wanted kind."""

    client_code: ClassVar[int] = ClientErrorCode.BROKER_NOT_EXIST_EXCEPTION
    retryable = True
    hint = "the broker is down or has moved: routes are refreshed every 30 s"

    def __init__(self, broker_name: str) -> None:
        super().__init__(broker_name)

    @property
    def broker(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"The broker[{self.args[0]}] not exist"


class NotFoundError(ClientError):
    """A message, group or cluster that was asked for does not exist."""

    response_code = ResponseCode.NO_MESSAGE


class InvalidMessageError(ClientError):
    """The message breaks a rule of the protocol, or exceeds max_message_size_bytes."""

    response_code = ResponseCode.MESSAGE_ILLEGAL


class InvalidBodyError(ClientError):
    """The body of a received message is not what a codec reads. ``__cause__`` is what the codec raised."""

    hint = "another program sends to this topic, or sends in another format"

    def __init__(self, topic: str, msg_id: str, codec: str, reason: str) -> None:
        super().__init__(topic, msg_id, codec, reason)

    @property
    def topic(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        topic, msg_id, codec, reason = self.args
        return f"the body of message {msg_id} of {topic} is not {codec}: {reason}"


class SendFailedError(ClientError):
    """Every attempt of a send failed. ``__cause__`` is the last failure."""

    retryable = True
    hint = "a failed attempt may have been stored all the same: send again only if a message may come twice"

    def __init__(self, topic: str, brokers: tuple[str, ...], cost_ms: int, client_code: int, reason: str) -> None:
        super().__init__(topic, brokers, cost_ms, client_code, reason)

    @property
    def topic(self) -> str:
        return str(self.args[0])

    @property
    def broker(self) -> str:
        """The name of the broker that was tried last."""
        return str(self.args[1][-1]) if self.args[1] else ""

    @property
    def client_code(self) -> int:
        """The broker's code, or 10001 not connected, 10002 no answer, 10003 no broker."""
        return int(self.args[3])

    def __str__(self) -> str:
        topic, brokers, cost_ms, code, reason = self.args
        return (
            f"Send [{len(brokers)}] times, still failed, cost [{cost_ms}]ms, Topic: {topic}, "
            f"BrokersSent: [{', '.join(brokers)}], code {code}: {reason}"
        )


class SendForbiddenError(ClientError):
    """A hook of this producer refused the send. ``__cause__`` is what it raised."""

    response_code = ResponseCode.NO_PERMISSION
    hint = "one of the hooks added to this producer decides what may be sent"

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)

    @property
    def topic(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"sending to {self.args[0]} is forbidden by a hook: {self.args[1]}"


class BatchPartlySentError(ClientError):
    """A list that needed several requests was stored in part. ``__cause__`` is the failure of the first request lost.

    ``receipts`` are those of the first messages of the list; whether any after them was stored is unknown.
    """

    retryable = False
    hint = "send the messages from number len(error.receipts) on again"

    def __init__(self, topic: str, receipts: tuple[SendReceipt, ...], count: int, reason: str) -> None:
        super().__init__(topic, receipts, count, reason)

    @property
    def topic(self) -> str:
        return str(self.args[0])

    @property
    def receipts(self) -> tuple[SendReceipt, ...]:
        return tuple(self.args[1])

    def __str__(self) -> str:
        topic, receipts, count, reason = self.args
        return f"only {len(receipts)} of {count} messages of a batch are stored, Topic: {topic}: {reason}"


class RequestTimeoutError(ClientError, TimeoutError):
    """The request was stored, but its reply did not come in time."""

    client_code: ClassVar[int] = ClientErrorCode.REQUEST_TIMEOUT_EXCEPTION
    retryable = True
    hint = "check that a consumer of the topic is running and replies; it may have worked on the request all the same"

    def __init__(self, topic: str, timeout_ms: int) -> None:
        super().__init__(topic, timeout_ms)

    @property
    def topic(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"send request message to <{self.args[0]}> OK, but wait reply message timeout, {self.args[1]} ms."


class CreateReplyError(ClientError):
    """The message cannot be replied to: it is not a request, or came through a broker that does not mark them."""

    client_code: ClassVar[int] = ClientErrorCode.CREATE_REPLY_MESSAGE_EXCEPTION
    hint = "only what was sent by request() can be replied to"


class ProducerFullError(ClientError):
    """As many messages, or bytes, are under way as the producer's settings allow, and they say not to wait."""

    retryable = True


class Reject(Exception):
    """Raised by a handler: this message will never succeed, send it to the dead letter queue now."""


class Retry(Exception):
    """Raised by a handler: deliver this message again, at *delay_level* 1 to 18, or as the broker thinks best (0).

    *delay*, in seconds or as a timedelta, stands for the first level that waits as long, or for the last. An orderly
    queue rests that long, or *pause_s* seconds (0.01 to 30), or else as its settings say.
    """

    def __init__(
        self, delay_level: int = 0, pause_s: float | None = None, *, delay: timedelta | float | None = None
    ) -> None:
        super().__init__(delay_level if delay is None else level_of(delay), pause_s)

    @property
    def delay_level(self) -> int:
        return int(self.args[0])

    @property
    def pause_s(self) -> float | None:
        return None if self.args[1] is None else float(self.args[1])


class Rollback(Exception):
    """Raised by an orderly handler: deliver everything again that this queue has handed out since its last commit.

    That counts as no failure. The queue rests *pause_s* seconds (0.01 to 30), or as its settings say.
    """

    def __init__(self, pause_s: float | None = None) -> None:
        super().__init__(pause_s)

    @property
    def pause_s(self) -> float | None:
        return None if self.args[0] is None else float(self.args[0])
