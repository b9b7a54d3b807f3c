"""Java's names: the forms of its constructors and of ``send``, statuses, contexts, and what mqcore makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqcore import compat
from mqcore.client import (
    ConsumerSettings,
    Done,
    PullConsumerSettings,
    ReceivedMessage,
    Retry,
    Rollback,
    Sql,
    select_by_hash,
)
from mqcore.client.errors import ClientError, ConfigError
from mqcore.compat import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueByConfig,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    DefaultLitePullConsumer,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
    MessageExt,
    MessageListenerConcurrently,
    MessageListenerOrderly,
    MessageQueue,
    MessageQueueSelector,
    MessageSelector,
    SelectMessageQueueByHash,
    SelectMessageQueueByMachineRoom,
    SendCallback,
    TransactionMQProducer,
    rocketmq,
)
from mqcore.compat.producer import HowToSend
from mqcore.compat.selectors import for_core
from mqcore.protocol.message import MessageExt as WireMessage
from mqcore.protocol.message import MessageQueue as CoreMessageQueue

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
QUEUES = [CoreMessageQueue("T", "broker-a", number) for number in range(4)]


def received(*bodies: bytes) -> list[ReceivedMessage]:
    return [ReceivedMessage(WireMessage("T", body, queue_id=1), QUEUES[1]) for body in bodies]


def test_every_name_is_javas_and_documented() -> None:
    for name in compat.__all__:
        assert re.fullmatch(r"[A-Z][A-Za-z]+", name)
        assert getattr(compat, name).__doc__


@pytest.mark.parametrize(
    ("arguments", "tags", "keys"),
    [((b"x",), None, None), (("A", b"x"), "A", None), (("A", "k1 k2", b"x"), "A", "k1 k2")],
)
def test_a_message_is_made_in_javas_forms(arguments: tuple[str | bytes, ...], tags: str, keys: str) -> None:
    message = Message("T", *arguments)
    assert (message.get_topic(), message.get_body(), message.get_tags(), message.get_keys()) == ("T", b"x", tags, keys)


def test_a_message_that_is_set_up_step_by_step_is_the_same() -> None:
    message = Message()
    message.set_topic("T")
    message.set_body(b"x")
    message.set_tags("A")
    message.set_keys(["k1", "k2"])
    message.set_delay_time_level(3)
    message.put_user_property("a", "1")
    message.set_flag(7)
    message.set_wait_store_msg_ok(False)
    core = message.to_core()
    assert (core.topic, core.body, core.tag, core.keys) == ("T", b"x", "A", ("k1", "k2"))
    assert (core.delay_level, core.properties, core.flag, core.wait_store_ok) == (3, {"a": "1"}, 7, False)
    assert "body=b'x'" in str(message)


@pytest.mark.parametrize("arguments", [("text",), ("A", "B", "C", b"x"), (b"A", b"x")])
def test_other_forms_of_a_message_are_refused(arguments: tuple[str | bytes, ...]) -> None:
    with pytest.raises(TypeError, match="tags"):
        Message("T", *arguments)


def test_a_queue_is_equal_to_the_same_queue_of_the_client() -> None:
    queue = MessageQueue("T", "broker-a", 1)
    assert queue == QUEUES[1] == queue
    assert {queue, QUEUES[1]} == {queue}
    assert queue != QUEUES[2]
    assert (queue.get_topic(), queue.get_broker_name(), queue.get_queue_id()) == ("T", "broker-a", 1)
    assert str(queue) == "MessageQueue [topic=T, brokerName=broker-a, queueId=1]"


def test_send_is_read_in_javas_forms() -> None:
    queue, callback, selector = MessageQueue("T", "b", 0), SendCallback(), MessageQueueSelector()
    assert HowToSend.read([]) == HowToSend()
    assert HowToSend.read([500]).timeout_s == 0.5
    how = HowToSend.read([queue, callback, 1000])
    assert (type(how.queue), how.queue, how.callback, how.timeout_s) == (CoreMessageQueue, queue, callback, 1.0)
    how = HowToSend.read([selector, 42, 2000])
    assert (how.selector, how.argument, how.timeout_s) == (selector, 42, 2.0)
    assert HowToSend.read([selector, queue, callback]).argument is queue


@pytest.mark.parametrize("arguments", [["x"], [MessageQueueSelector()], [1000, 2000], [None]])
def test_other_forms_of_send_are_refused(arguments: list[object]) -> None:
    with pytest.raises(TypeError, match="send"):
        HowToSend.read(arguments)


@pytest.mark.parametrize("key", ["order-1", 42, 3.5, True, "ÄÖ"])
def test_the_hash_selector_chooses_as_the_client_does(key: str | int | float) -> None:
    chosen = for_core(SelectMessageQueueByHash(), Message("T", b""), key)(QUEUES, Message("T", b"").to_core())
    assert chosen == select_by_hash(QUEUES, key)
    assert type(chosen) is CoreMessageQueue


def test_a_selector_of_ones_own_sees_javas_queues_the_message_and_the_argument() -> None:
    message = Message("T", b"x")

    def select(queues: object, given: object, argument: object) -> CoreMessageQueue:
        assert isinstance(queues, list)
        assert given is message
        return queues[argument].__class__("T", "broker-a", queues[argument].get_queue_id())

    assert for_core(select, message, 2)(QUEUES, message.to_core()) == QUEUES[2]
    room = SelectMessageQueueByMachineRoom()
    room.set_consumeridcs(["room"])
    with pytest.raises(ClientError, match="machine rooms"):
        room.select([MessageQueue.of(queue) for queue in QUEUES], message, None)


@pytest.mark.parametrize(
    ("status", "ack_index", "level", "wanted"),
    [
        (SUCCESS, None, 0, Done(3, 0)),
        (SUCCESS, 1, 5, Done(2, 5)),
        (SUCCESS, -1, 0, Done(0, 0)),
        (SUCCESS, 99, 0, Done(3, 0)),
        (LATER, None, -1, Done(0, -1)),
        (LATER, 1, 2, Done(0, 2)),
    ],
)
def test_a_concurrent_listeners_answer_says_how_many_are_done(
    status: ConsumeConcurrentlyStatus, ack_index: int | None, level: int, wanted: Done
) -> None:
    def consume(messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        assert [message.get_body() for message in messages] == [b"a", b"b", b"c"]
        assert context.get_message_queue() == QUEUES[1]
        if ack_index is not None:
            context.set_ack_index(ack_index)
        context.set_delay_level_when_next_consume(level)
        return status

    assert MessageListenerConcurrently(consume).handle(received(b"a", b"b", b"c")) == wanted


@pytest.mark.parametrize("status", [*ConsumeOrderlyStatus, None])
@pytest.mark.parametrize("auto_commit", [True, False])
def test_an_orderly_listeners_answer_commits_keeps_suspends_or_rolls_back(
    status: ConsumeOrderlyStatus, auto_commit: bool
) -> None:
    def consume(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        assert context.is_auto_commit()
        context.set_auto_commit(auto_commit)
        context.set_suspend_current_queue_time_millis(4000)
        return status

    listener = MessageListenerOrderly(consume)
    if status in (None, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT):
        with pytest.raises(Retry) as caught:
            listener.handle(received(b"a"))
        assert caught.value.pause_s == 4.0
    elif status is ConsumeOrderlyStatus.ROLLBACK and not auto_commit:
        with pytest.raises(Rollback) as rolled_back:
            listener.handle(received(b"a"))
        assert rolled_back.value.pause_s == 4.0
    else:
        is_kept = status is ConsumeOrderlyStatus.SUCCESS and not auto_commit
        assert listener.handle(received(b"a")) == Done(commit=not is_kept)


def test_setters_fill_the_settings_of_the_consumer() -> None:
    consumer = DefaultMQPushConsumer("g", allocate_message_queue_strategy=AllocateMessageQueueAveragely())
    consumer.set_consume_thread_min(3)
    consumer.set_consume_thread_max(8)
    consumer.set_consume_message_batch_max_size(2)
    consumer.set_consume_timeout(1)
    consumer.set_suspend_current_queue_time_millis(500)
    consumer.set_consume_timestamp("20240506070809")
    consumer.set_message_model(compat.MessageModel.BROADCASTING)
    consumer.set_consume_from_where(compat.ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
    settings = ConsumerSettings(**consumer._settings)
    assert (settings.concurrency, settings.batch_size, settings.consume_timeout_s) == (8, 2, 60)
    assert (settings.suspend_queue_s, settings.message_model, settings.from_where) == (
        0.5, "BROADCASTING", "CONSUME_FROM_TIMESTAMP",
    )  # fmt: skip


def test_setters_fill_the_settings_of_the_pull_consumer() -> None:
    consumer = DefaultLitePullConsumer("g")
    consumer.set_auto_commit(False)
    consumer.set_pull_batch_size(20)
    consumer.set_poll_timeout_millis(1500)
    settings = PullConsumerSettings(**consumer._settings)
    assert (settings.auto_commit, settings.pull_batch_size, settings.poll_timeout_s) == (False, 20, 1.5)
    assert not consumer.is_running()


def test_what_has_not_been_started_says_so() -> None:
    with pytest.raises(ClientError, match="CREATE_JUST"):
        DefaultMQProducer("g").send(Message("T", b"x"))
    with pytest.raises(ClientError, match="no group"):
        DefaultMQProducer().start()
    with pytest.raises(ClientError, match="not running"):
        DefaultLitePullConsumer("g").poll()
    with pytest.raises(ClientError, match="messageListener is null"):
        DefaultMQPushConsumer("g").start()
    transactional = TransactionMQProducer("g")
    transactional.set_namesrv_addr("127.0.0.1:9")
    with pytest.raises(ClientError, match="TransactionListener is null"):
        transactional.start()


def test_a_bad_setting_is_found_at_the_start() -> None:
    producer = DefaultMQProducer("g")
    producer.set_namesrv_addr("127.0.0.1:9")
    producer.set_retry_times_when_send_failed(-1)
    with pytest.raises(ConfigError, match="retries"):
        producer.start()


def test_a_strategy_by_configuration_takes_javas_queues() -> None:
    strategy = AllocateMessageQueueByConfig()
    strategy.set_message_queue_list([MessageQueue("T", "broker-a", 1)])
    assert list(strategy.core("me", QUEUES, ["me"])) == [QUEUES[1]]


def test_selectors_of_messages() -> None:
    assert MessageSelector.by_tag("a || b").expression == "a || b"
    assert MessageSelector.by_sql("a > 1").expression == Sql("a > 1")


def test_the_wrappers_messages_have_bytes_where_it_had_bytes() -> None:
    message = rocketmq.Message("T")
    message.set_keys(b"k1 k2")
    message.set_tags("A")
    message.set_body("text")
    message.set_property(b"a", b"1")
    core = message.to_core()
    assert (core.keys, core.tag, core.body, core.properties) == (("k1", "k2"), "A", b"text", {"a": "1"})
    (found,) = received(b"hello")
    shown = rocketmq.RecvMessage(found)
    assert (str(shown), bytes(shown), shown.tags, shown.queue_id) == ("hello", b"hello", b"", 1)


@pytest.mark.parametrize(
    ("answers", "done"),
    [
        ([None, None], 2),
        ([rocketmq.ConsumeStatus.CONSUME_SUCCESS, rocketmq.ConsumeStatus.RECONSUME_LATER], 1),
        ([ValueError("no"), None], 0),
    ],
)
def test_the_wrappers_callbacks_settle_one_message_after_the_other(answers: list[object], done: int) -> None:
    consumer = rocketmq.PushConsumer("g")
    left = iter(answers)

    def callback(message: rocketmq.RecvMessage) -> rocketmq.ConsumeStatus | None:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        assert answer is None or isinstance(answer, rocketmq.ConsumeStatus)
        return answer

    consumer.subscribe("T", callback)
    assert consumer._handle(received(b"a", b"b")) == Done(done)


def test_every_class_of_the_java_examples_is_there() -> None:
    examples = Path(__file__).resolve().parents[2] / "docs" / "examples" / "java_names"
    used = {name for path in examples.glob("*.py") for name in re.findall(r"^    ([A-Z]\w+),$", path.read_text(), re.M)}
    assert used
    assert used <= set(compat.__all__)


def test_a_callback_of_the_wrong_kind_is_refused() -> None:
    producer = DefaultMQProducer("g")
    with pytest.raises(TypeError, match="send: wanted a SendCallback"):
        producer.send(Message("T", b"x"), compat.RequestCallback())  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="request: wanted a RequestCallback"):
        producer.request(Message("T", b"x"), SendCallback())  # type: ignore[call-overload]


def test_the_answer_to_a_request_carries_what_brings_it_back() -> None:
    (message,) = received(b"?")
    message.ext.properties |= {"CLUSTER": "C", "CORRELATION_ID": "7", "REPLY_TO_CLIENT": "me", "TTL": "3000"}
    asked = MessageExt(message)
    assert compat.MessageUtil.get_reply_to_client(asked) == "me"
    answer = compat.MessageUtil.create_reply_message(asked, b"!")
    core = answer.to_core()
    assert (answer.get_topic(), core.topic, core.body) == ("C_REPLY_TOPIC", "C_REPLY_TOPIC", b"!")
    wanted = {"CORRELATION_ID": "7", "REPLY_TO_CLIENT": "me", "TTL": "3000", "MSG_TYPE": "reply"}
    assert core.wire_properties() == wanted
    assert compat.MessageUtil.get_reply_to_client(MessageExt(received(b"x")[0])) is None


def test_an_old_pull_consumer_that_has_not_been_started_says_so() -> None:
    consumer = compat.DefaultMQPullConsumer("g")
    with pytest.raises(ClientError, match="CREATE_JUST"):
        consumer.fetch_subscribe_message_queues("T")
    with pytest.raises(ClientError, match="no group"):
        compat.DefaultMQPullConsumer().start()
