"""Values as bodies of messages: how they are encoded and decoded, in one object for producers, consumers and handlers.

It stands beside the sending and receiving, which know bytes alone and stay as fast as they are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack

import orjson

from mqcore.client.errors import InvalidBodyError, Reject
from mqcore.client.model.message_options import MessageOptions
from mqcore.client.model.messages import Message, ReceivedMessage

T = TypeVar("T")
R = TypeVar("R")


class Codec(Generic[T]):
    """Makes messages of values, and values of messages.

    *encode* returns bytes, or text for UTF-8; *decode* gets the body, and may raise anything for one that it cannot
    read. *name* is for errors.
    """

    def __init__(
        self, encode: Callable[[T], bytes | str], decode: Callable[[bytes], T], name: str = "the codec"
    ) -> None:
        self._encode = encode
        self._decode = decode
        self.name = name

    def message(self, topic: str, value: T, **options: Unpack[MessageOptions]) -> Message:
        """Return a message whose body is *value*, to be sent in any way; keyword arguments are those of Message.

        What *encode* raises comes through: the value is the program's own.
        """
        body = self._encode(value)
        return Message(topic, body.encode() if isinstance(body, str) else body, **options)

    def value(self, message: ReceivedMessage) -> T:
        """Return the value in the body of *message*. Raises InvalidBodyError, whose cause is what *decode* raised."""
        try:
            return self._decode(message.body)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InvalidBodyError(message.topic, message.msg_id, self.name, reason) from error

    def handler(self, function: Callable[[T, ReceivedMessage], R]) -> Callable[[ReceivedMessage], R]:
        """Return *function*, which takes a value and its message, as a handler of messages; coroutine or not.

        A body that cannot be decoded becomes a dead letter at once: it could not the next time either.
        """

        async def call_async(message: ReceivedMessage) -> Any:
            awaited: Any = function(self._value_or_reject(message), message)
            return await awaited

        def call(message: ReceivedMessage) -> Any:
            return function(self._value_or_reject(message), message)

        return functools.wraps(function)(call_async if inspect.iscoroutinefunction(function) else call)

    def _value_or_reject(self, message: ReceivedMessage) -> T:
        try:
            return self.value(message)
        except InvalidBodyError as error:
            raise Reject(str(error)) from error


JSON: Codec[Any] = Codec(orjson.dumps, orjson.loads, "JSON")
"""What JSON knows, and of Python's own dataclasses, datetimes and UUIDs one way, as text."""
