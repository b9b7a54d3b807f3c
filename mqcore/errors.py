"""The whole error tree.

Few classes, by what the caller does next. Each class says once which response code it becomes on the wire, whether the
same request may be tried again, and what to do about it. Every error pickles between processes, with its place.

There are two trunks: an MQError is what the world did, and may be worth another attempt; a MisuseError is what the
program did, and is worth none, which is why whoever catches MQError to try again does not catch it.
"""

from __future__ import annotations

from typing import ClassVar, Self, cast

from mqcore.codes import ClientErrorCode, ResponseCode


class BaseMQError(Exception):
    """Root of every error that mqcore raises on purpose. It answers SYSTEM_ERROR unless a subclass says otherwise."""

    response_code: ClassVar[int] = ResponseCode.SYSTEM_ERROR
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again, after a moment and without any other change."""
    hint: ClassVar[str] = ""
    """What to do next, in a sentence; empty when the message says it all."""

    @property
    def code(self) -> int:
        """The number that RocketMQ gives this failure: a broker's response code, or a client's own, from 10001 on."""
        return int(getattr(self, "client_code", self.response_code))

    @property
    def broker(self) -> str:
        """The address, or the name, of the broker that the failed call was for; empty when there is none."""
        return str(self.__dict__.get("_broker", ""))

    @property
    def topic(self) -> str:
        """The topic that the failed call was about; empty when there is none."""
        return str(self.__dict__.get("_topic", ""))

    def at(self, *, broker: str = "", topic: str = "") -> Self:
        """Note where it happened, unless that is known already, and return the error itself."""
        if broker and not self.broker:
            self.__dict__["_broker"] = broker
        if topic and not self.topic:
            self.__dict__["_topic"] = topic
        return self


class MQError(BaseMQError):
    """What a broker, a peer, a disk or a connection did, or a setting says: the program may be right."""


class MisuseError(BaseMQError):
    """What the program did: the same call fails again until the program is corrected."""


class ArgumentError(MisuseError, ValueError):
    """An argument can never be right: no legal name, a count below 1, two that exclude each other."""


class ClientStateError(MisuseError, RuntimeError):
    """The object is not in the state that the call needs: not started, closed, or of another process."""


class ClientClosedError(ClientStateError):
    """The client, producer or consumer is closed or closing."""


class ConfigError(MQError, ValueError):
    """A setting is unknown, malformed or out of range. The start stops and names the key."""


class TlsError(ConfigError):
    """A certificate, a key or a list of those to trust cannot be used, or does not fit to another."""


class TlsUnavailableError(TlsError):
    """TLS is asked for, and there is no OpenSSL that could do it."""

    hint = "install OpenSSL 3 (libssl.so.3), or set tls.server.mode=disabled"


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


class BackupError(StoreError):
    """A backup does not fit the store, or cannot be restored as asked. What is there was left as it was."""


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
    """A call did not get its answer. Make it again."""

    retryable = True


UNREACHABLE_HINT = (
    "check that the peer runs and that its address can be reached from here; a broker's address is the one that it "
    "registered (brokerIP1)"
)


class RemotingConnectError(RemotingError):
    """The peer could not be connected: nothing was sent."""

    client_code: ClassVar[int] = ClientErrorCode.CONNECT_BROKER_EXCEPTION
    hint = UNREACHABLE_HINT


class RemotingSendError(RemotingError):
    """The connection broke before or while the request was written, or before its answer came."""

    client_code: ClassVar[int] = ClientErrorCode.CONNECT_BROKER_EXCEPTION
    hint = UNREACHABLE_HINT


class RemotingTimeoutError(RemotingError, TimeoutError):
    """No answer came in time; whether the request took effect is unknown."""

    client_code: ClassVar[int] = ClientErrorCode.ACCESS_BROKER_TIMEOUT
    hint = "the request may or may not have taken effect: make it again only if doing it twice is harmless"


class RemotingTooMuchRequestError(RemotingError):
    """The in-flight limit of this client is reached."""

    hint = "send slower, or raise the limit of what may be in flight"


# What a broker or a name server refused. ``BrokerError(code, ...)`` makes the class of its code.


class BrokerError(MQError):
    """A broker or name server answered with a code that means no.

    Codes that call for something definite have a class of their own: catch that, or this for all of them.
    """

    codes: ClassVar[tuple[int, ...]] = ()
    """The response codes of this class; none stands for all that no other class has."""

    def __new__(cls, code: int, remark: str = "", address: str = "") -> Self:
        chosen = _CLASS_OF_CODE.get(code, cls) if cls is BrokerError else cls
        return cast("Self", super().__new__(chosen, code, remark, address))

    def __init__(self, code: int, remark: str = "", address: str = "") -> None:
        super().__init__(code, remark, address)

    @property
    def code(self) -> int:
        return int(self.args[0])

    @property
    def code_name(self) -> str:
        """RocketMQ's name of the code, such as ``TOPIC_NOT_EXIST``, or its number when it has none."""
        try:
            return ResponseCode(self.code).name
        except ValueError:
            return str(self.code)

    @property
    def remark(self) -> str:
        """What the broker wrote."""
        return str(self.args[1])

    @property
    def address(self) -> str:
        return str(self.args[2])

    @property
    def broker(self) -> str:
        return self.address or super().broker

    def __str__(self) -> str:
        code, remark, address = self.args
        return f"CODE: {code} DESC: {remark}" + (f" BROKER: {address}" if address else "")


class BrokerBusyError(BrokerError):
    """The broker has too much to do and took nothing: wait, and send again."""

    codes = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)
    retryable = True
    hint = "wait a moment and try again; a broker that stays busy has slow disks or too little memory"


class BrokerUnavailableError(BrokerError):
    """The broker cannot serve now, and says why: starting, stopping, disk full, a slave. Others may."""

    codes = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.CONSUMER_NOT_ONLINE)
    retryable = True
    hint = "try again later; the remark says what the broker is waiting for"


class TopicNotFoundError(BrokerError):
    """The topic does not exist there: create it, or spell it right."""

    codes = (ResponseCode.TOPIC_NOT_EXIST,)
    hint = "create the topic (mqcore topic create), or let the broker do so (autoCreateTopicEnable)"


class PermissionDeniedError(BrokerError):
    """The topic, the group or the broker may not be read or written this way."""

    codes = (ResponseCode.NO_PERMISSION,)
    hint = "ask for the permission: perm of the topic, brokerPermission, consumeEnable of the group"


class GroupNotFoundError(BrokerError):
    """The consumer group does not exist there: create it, or spell it right."""

    codes = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,)
    hint = "create the group, or let the broker do so (autoCreateSubscriptionGroup)"


class SubscriptionError(BrokerError):
    """The broker cannot understand the subscription: correct the expression."""

    codes = (ResponseCode.SUBSCRIPTION_PARSE_FAILED,)
    hint = "correct the expression; SQL92 needs enablePropertyFilter at the broker"


class SubscriptionNotReadyError(BrokerError):
    """The broker has not heard of the subscription yet, or knows an older one: the next heart-beat tells it."""

    codes = (
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    )
    retryable = True
    hint = "if it does not pass by itself, members of one group subscribe to different things"


class MessageRefusedError(BrokerError):
    """The broker found the message itself wrong, most often too large: change it."""

    codes = (ResponseCode.MESSAGE_ILLEGAL,)
    hint = "make the message smaller, or raise maxMessageSize at the broker"


class NotSupportedError(BrokerError):
    """The broker does not know this kind of request, or does not do it in its version."""

    codes = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.VERSION_NOT_SUPPORTED)
    hint = "use a broker that supports it, or do without"


_CLASS_OF_CODE: dict[int, type[BrokerError]] = {
    code: found
    for found in (
        BrokerBusyError, BrokerUnavailableError, TopicNotFoundError, PermissionDeniedError, GroupNotFoundError,
        SubscriptionError, SubscriptionNotReadyError, MessageRefusedError, NotSupportedError,
    )
    for code in found.codes
}  # fmt: skip


class FilterSyntaxError(MQError):
    """An SQL92 expression cannot be understood; the text is the one that RocketMQ's broker answers with."""

    response_code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class ClientError(MQError):
    """The client refused before anything was sent, or gave up: no route, a message too large, every attempt failed."""


NO_ROUTE_HINT = (
    "create the topic (mqcore topic create), or let the broker do so (autoCreateTopicEnable); if it is there, check "
    "that the name server address is the right one and that the broker can be reached where it registered (brokerIP1)"
)


class NoRouteError(ClientError):
    """No name server knows a broker for the topic."""

    response_code = ResponseCode.TOPIC_NOT_EXIST
    client_code: ClassVar[int] = ClientErrorCode.NOT_FOUND_TOPIC_EXCEPTION
    hint = NO_ROUTE_HINT

    def __init__(self, topic: str) -> None:
        super().__init__(topic)

    @property
    def topic(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"No route info of this topic: {self.topic}; {self.hint}"


# Processes: what happened to a worker.


class WorkerError(MQError):
    """A worker process could not start, died, or lost its parent."""


class MetadataError(MQError):
    """A change of topics, groups or queues that all brokers of a failover group must make is not known to be made."""


class MetadataNotStoredError(MetadataError):
    """It is not made, and will not be: nothing of it is in the log."""


class EngineError(MQError):
    """The engine in which a group of brokers keeps its state has not answered, or has refused."""

    retryable = True
    hint = "look at failoverEtcd, and whether most members of etcd run and reach each other"


class GroupIdentityError(MQError):
    """This broker cannot go on in its failover group without an operator: the text says what does not fit."""

    hint = "see docs/failover.md before anything is emptied or forced"


class UnfitMemberError(MQError):
    """What an operator wants of a failover group cannot be done with that member."""

    response_code = ResponseCode.NO_PERMISSION
