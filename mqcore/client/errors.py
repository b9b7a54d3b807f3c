"""What the client itself can find wrong before, or instead of, an answer from a broker.

All are ClientErrors, so ``except MQError`` catches everything that mqcore raises on purpose. ``client_code`` is the
number that RocketMQ's clients give the same failure; it never travels.
"""

from __future__ import annotations

from typing import ClassVar

from mqcore.codes import ClientErrorCode, ResponseCode
from mqcore.errors import ClientError

NO_ROUTE_HINT = (
    "check that the name server address is the right one, that the topic exists or the broker may create it "
    "(autoCreateTopicEnable), and that the address the broker registered can be reached from here (brokerIP1)"
)


class ClientStateError(ClientError):
    """The object is not in the state that the call needs: not started, closed, or of another process."""


class ClientClosedError(ClientStateError):
    """The client, producer or consumer is closed or closing."""


class NoNameServerError(ClientError):
    """No name server address was given."""

    client_code: ClassVar[int] = ClientErrorCode.NO_NAME_SERVER_EXCEPTION


class NoRouteError(ClientError):
    """No name server knows a broker for the topic."""

    response_code = ResponseCode.TOPIC_NOT_EXIST
    client_code: ClassVar[int] = ClientErrorCode.NOT_FOUND_TOPIC_EXCEPTION

    def __init__(self, topic: str) -> None:
        super().__init__(topic)

    @property
    def topic(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"No route info of this topic: {self.topic}; {NO_ROUTE_HINT}"


class BrokerNotFoundError(ClientError):
    """The broker name is in no route, or has no address of the wanted kind."""

    client_code: ClassVar[int] = ClientErrorCode.BROKER_NOT_EXIST_EXCEPTION

    def __init__(self, broker_name: str) -> None:
        super().__init__(broker_name)

    def __str__(self) -> str:
        return f"The broker[{self.args[0]}] not exist"


class NotFoundError(ClientError):
    """A message, group or cluster that was asked for does not exist."""

    response_code = ResponseCode.NO_MESSAGE


class InvalidMessageError(ClientError):
    """The message breaks a rule of the protocol, or exceeds max_message_size_bytes."""

    response_code = ResponseCode.MESSAGE_ILLEGAL


class SendFailedError(ClientError):
    """Every attempt of a send failed. ``__cause__`` is the last failure."""

    def __init__(self, topic: str, brokers: tuple[str, ...], cost_ms: int, client_code: int, reason: str) -> None:
        super().__init__(topic, brokers, cost_ms, client_code, reason)

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


class Reject(Exception):
    """Raised by a handler: this message will never succeed, send it to the dead letter queue now."""


class Retry(Exception):
    """Raised by a handler: deliver this message again, at *delay_level* 1 to 18, or as the broker thinks best (0)."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(delay_level)

    @property
    def delay_level(self) -> int:
        return int(self.args[0])
