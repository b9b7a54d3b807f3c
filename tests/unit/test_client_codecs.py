"""Values as bodies: any codec makes messages of them, and handlers that take them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
from datetime import timedelta

import pytest

from mqcore.client import JSON, Codec, Message, ReceivedMessage, Reject
from mqcore.client.errors import InvalidBodyError, MQError
from mqcore.client.model.message_options import MessageOptions
from mqcore.testing import message


@dataclasses.dataclass(frozen=True)
class Order:
    number: int
    customer: str


ORDERS = Codec(lambda order: json.dumps(dataclasses.asdict(order)), lambda body: Order(**json.loads(body)), "an order")


def test_a_value_becomes_a_message_with_its_options() -> None:
    made = JSON.message("Orders", {"id": 42}, tag="new", keys=["42"], delay=timedelta(seconds=5))
    assert made == Message("Orders", b'{"id":42}', tag="new", keys=["42"], delay=5)


def test_the_options_are_those_of_a_message() -> None:
    parameters = inspect.signature(Message).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == MessageOptions.__annotations__.keys()


@pytest.mark.parametrize("value", [{"id": 42, "name": "Jürgen"}, [1, 2.5, None, True], "text", 0])
def test_json_comes_back_as_it_went(value: object) -> None:
    assert JSON.value(message(JSON.message("T", value).body)) == value


def test_a_codec_of_text_is_sent_as_utf_8() -> None:
    order = Order(42, "Jürgen")
    assert ORDERS.value(message(ORDERS.message("Orders", order).body)) == order


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"number": 1}', b"[]"])
def test_a_body_that_cannot_be_read_is_an_error_that_names_the_message(body: bytes) -> None:
    received = message(body, topic="Orders")
    with pytest.raises(
        InvalidBodyError, match=f"body of message {received.msg_id} of Orders is not an order"
    ) as caught:
        ORDERS.value(received)
    assert isinstance(caught.value, MQError)
    assert caught.value.__cause__ is not None
    assert (caught.value.topic, caught.value.retryable) == ("Orders", False)


def test_what_cannot_be_encoded_is_the_program_s_own_error() -> None:
    with pytest.raises(TypeError):
        JSON.message("Orders", object())


def test_a_handler_of_values_is_a_handler_of_messages() -> None:
    got: list[tuple[Order, ReceivedMessage]] = []

    @ORDERS.handler
    def plain(order: Order, received: ReceivedMessage) -> int:
        got.append((order, received))
        return order.number

    @ORDERS.handler
    async def asynchronous(order: Order, received: ReceivedMessage) -> int:
        await asyncio.sleep(0)
        return plain(received)

    made = message(ORDERS.message("Orders", Order(42, "A")).body)
    assert plain(made) == asyncio.run(asynchronous(made)) == 42  # type: ignore[arg-type]
    assert got == [(Order(42, "A"), made)] * 2
    assert inspect.iscoroutinefunction(asynchronous)
    assert plain.__name__ == "plain"


def test_a_body_that_cannot_be_read_becomes_a_dead_letter_at_once() -> None:
    @JSON.handler
    def handle(value: object, received: ReceivedMessage) -> None:
        raise AssertionError("nothing to handle")

    with pytest.raises(Reject, match="is not JSON"):
        handle(message(b"{"))
