"""Java's names for asking and answering over a topic."""

from __future__ import annotations

from collections.abc import Callable

from mqcore import client
from mqcore.client import create_reply
from mqcore.compat.message import Message, MessageExt
from mqcore.protocol import properties as names


class RequestCallback:
    """Hears the reply to an asynchronous request. Override the methods, or give functions."""

    def __init__(
        self,
        on_success: Callable[[MessageExt], object] | None = None,
        on_exception: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, message: MessageExt) -> None:
        if self._on_success is not None:
            self._on_success(message)

    def on_exception(self, error: BaseException) -> None:
        if self._on_exception is not None:
            self._on_exception(error)


class ReplyMessage(Message):
    """The answer to a request, made by MessageUtil and sent like any other message."""

    def __init__(self, request: MessageExt, body: bytes) -> None:
        self._reply = create_reply(request.received, body)
        super().__init__(self._reply.topic, body)

    def to_core(self) -> client.Message:
        return self._reply


class MessageUtil:
    """Java's helpers of those who answer requests."""

    @staticmethod
    def create_reply_message(request_message: MessageExt, body: bytes) -> Message:
        """Return the answer to *request_message*, to be sent by a producer; CreateReplyError when it is no request."""
        return ReplyMessage(request_message, body)

    @staticmethod
    def get_reply_to_client(message: MessageExt) -> str | None:
        """Return the id of the client that waits for an answer to *message*."""
        return message.get_property(names.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
