"""Java's DefaultMQPullConsumer, which says for each pull which queue and offset it wants, and keeps its own offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import overload

from mqcore import client
from mqcore.client import PullConsumer, PullStatus
from mqcore.client.consume.polled.pull_api import RECONSUME_TIMES_MAX
from mqcore.client.session.handler_threads import HandlerThreads
from mqcore.compat.config import AclClientRPCHook
from mqcore.compat.consumer import MemberConfig, MessageSelector, expression_of
from mqcore.compat.enums import MessageModel
from mqcore.compat.message import MessageExt, MessageQueue, as_java, core_queue
from mqcore.errors import ClientError, ClientStateError
from mqcore.protocol.message import MessageQueue as CoreMessageQueue

CALLBACK_THREADS = 20
SUSPEND_MS = 20_000
"""How long the broker may hold a pull that finds nothing, if the program says no other time."""

Expressed = str | MessageSelector | None


class PullResult:
    """What a pull found, and where the next one is to begin."""

    def __init__(self, found: client.PullResult) -> None:
        self._found = found

    def get_pull_status(self) -> PullStatus:
        return self._found.status

    def get_next_begin_offset(self) -> int:
        return self._found.next_offset

    def get_min_offset(self) -> int:
        return self._found.min_offset

    def get_max_offset(self) -> int:
        return self._found.max_offset

    def get_msg_found_list(self) -> list[MessageExt]:
        return as_java(self._found.messages)

    def __str__(self) -> str:
        found = self._found
        return (
            f"PullResult [pullStatus={found.status}, nextBeginOffset={found.next_offset}, "
            f"minOffset={found.min_offset}, maxOffset={found.max_offset}, msgFoundList={len(found.messages)}]"
        )


class PullCallback:
    """Hears what a pull found. Override the methods, or give functions."""

    def __init__(
        self,
        on_success: Callable[[PullResult], object] | None = None,
        on_exception: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, pull_result: PullResult) -> None:
        if self._on_success is not None:
            self._on_success(pull_result)

    def on_exception(self, error: BaseException) -> None:
        if self._on_exception is not None:
            self._on_exception(error)


class MessageQueueListener:
    """Hears which queues of a topic there are, and which of them are this member's. Override, or give a function."""

    def __init__(self, function: Callable[[str, set[MessageQueue], set[MessageQueue]], object] | None = None) -> None:
        self._function = function

    def message_queue_changed(self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]) -> None:
        if self._function is not None:
            self._function(topic, mq_all, mq_divided)


class DefaultMQPullConsumer(MemberConfig):
    """Pulls one queue at a time; Java advises to take DefaultLitePullConsumer in its place, and so does this.

    The queues of registered topics are divided in the group; nothing is pulled of them unless the program does it.
    """

    def __init__(self, consumer_group: str = "", rpc_hook: AclClientRPCHook | None = None) -> None:
        super().__init__(consumer_group, rpc_hook)
        self._member: PullConsumer | None = None
        self._threads = HandlerThreads(CALLBACK_THREADS, "mqcore pull callback")
        self._offsets: dict[CoreMessageQueue, int] = {}
        self._suspend_ms = SUSPEND_MS
        self._max_reconsume_times = RECONSUME_TIMES_MAX
        self._listener: MessageQueueListener | None = None
        self._divided: dict[str, set[MessageQueue]] = {}

    def set_max_reconsume_times(self, times: int) -> None:
        """Set how often a message may be sent back before it becomes a dead letter."""
        self._max_reconsume_times = times

    def set_register_topics(self, topics: Iterable[str]) -> None:
        """Set the topics whose queues are divided in the group, before ``start``."""
        self._topics = dict.fromkeys(topics, MessageSelector.ALL)

    def set_message_queue_listener(self, listener: MessageQueueListener) -> None:
        self._listener = listener

    def register_message_queue_listener(self, topic: str, listener: MessageQueueListener | None) -> None:
        """Let the queues of *topic* be divided in the group; *listener*, one for all topics, hears of it."""
        if listener is not None:
            self._listener = listener
        if topic not in self._topics:
            self._topics[topic] = MessageSelector.ALL
            if self._member is not None:
                self._member.subscribe(topic)

    def set_broker_suspend_max_time_millis(self, suspend_ms: int) -> None:
        """Set how long the broker may hold a ``pull_block_if_not_found``."""
        self._suspend_ms = suspend_ms

    # Life cycle.

    def start(self) -> None:
        """Join the group; without registered topics brokers hear of it with the heart-beat after the first pull."""
        self._check_group()
        opened = self._open_client()
        try:
            self._member = opened.pull_consumer(
                self._group,
                self._topics,
                on_assigned=self._on_assigned,
                on_revoked=self._on_revoked,
                **(self._settings | {"auto_commit": False}),
            )
            self._member.start()
        except BaseException:
            self._member = None
            opened.close()
            raise

    def shutdown(self) -> None:
        """Leave the group and close the connections."""
        self._threads.shutdown(cancel_futures=True)
        member, self._member = self._member, None
        if member is not None:
            member.close()
        self._close_client()

    # What the group's division says.

    def fetch_message_queues_in_balance(self, topic: str) -> set[MessageQueue]:
        """Return the queues of *topic*, a registered one, that are this member's."""
        self._joined()
        return set(self._divided.get(topic, ()))

    def _on_assigned(self, queues: Sequence[CoreMessageQueue]) -> None:
        if self._member is not None:
            # The program pulls, and nobody else: what the member pulled ahead would lie there for ever.
            self._member.pause(*queues)
            self._tell_of(queues, set.union)

    def _on_revoked(self, queues: Sequence[CoreMessageQueue]) -> None:
        if self._member is not None:
            self._tell_of(queues, set.difference)

    def _tell_of(
        self,
        queues: Sequence[CoreMessageQueue],
        change: Callable[[set[MessageQueue], set[MessageQueue]], set[MessageQueue]],
    ) -> None:
        changed = {MessageQueue.of(queue) for queue in queues}
        for topic in {queue.topic for queue in changed}:
            own = change(self._divided.get(topic, set()), {queue for queue in changed if queue.topic == topic})
            self._divided[topic] = own
            if self._listener is not None:
                everything = {MessageQueue.of(queue) for queue in self._running_client().queues(topic)}
                self._listener.message_queue_changed(topic, everything | own, set(own))

    # Pulling.

    @overload
    def pull(self, mq: CoreMessageQueue, sub_expression: Expressed, offset: int, max_nums: int) -> PullResult: ...
    @overload
    def pull(
        self, mq: CoreMessageQueue, sub_expression: Expressed, offset: int, max_nums: int, pull_callback: PullCallback
    ) -> None: ...

    def pull(
        self,
        mq: CoreMessageQueue,
        sub_expression: Expressed,
        offset: int,
        max_nums: int,
        pull_callback: PullCallback | None = None,
    ) -> PullResult | None:
        """Return what is there of *mq* from *offset* on, at once; with a callback it is told in another thread."""
        return self._pull(mq, sub_expression, offset, max_nums, 0.0, pull_callback)

    @overload
    def pull_block_if_not_found(
        self, mq: CoreMessageQueue, sub_expression: Expressed, offset: int, max_nums: int
    ) -> PullResult: ...
    @overload
    def pull_block_if_not_found(
        self, mq: CoreMessageQueue, sub_expression: Expressed, offset: int, max_nums: int, pull_callback: PullCallback
    ) -> None: ...

    def pull_block_if_not_found(
        self,
        mq: CoreMessageQueue,
        sub_expression: Expressed,
        offset: int,
        max_nums: int,
        pull_callback: PullCallback | None = None,
    ) -> PullResult | None:
        """As ``pull``, but let the broker wait for messages when there are none."""
        return self._pull(mq, sub_expression, offset, max_nums, self._suspend_ms / 1000, pull_callback)

    def _pull(
        self,
        mq: CoreMessageQueue,
        sub_expression: Expressed,
        offset: int,
        max_nums: int,
        wait_s: float,
        callback: PullCallback | None,
    ) -> PullResult | None:
        opened = self._joined()

        def pull_now() -> PullResult:
            expression = expression_of(sub_expression)
            found = opened.pull(
                core_queue(mq), offset, max_nums, expression=expression, wait_s=wait_s, group=self._group
            )
            return PullResult(found)

        if callback is None:
            return pull_now()
        self._threads.submit(_pull_for, pull_now, callback)
        return None

    # Queues and offsets.

    def fetch_subscribe_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return the queues of *topic*; ClientError when it has none."""
        queues = {MessageQueue.of(queue) for queue in self._joined().queues(topic)}
        if not queues:
            raise ClientError(f"Can not find Message Queue for this topic, {topic}")
        return queues

    def max_offset(self, mq: CoreMessageQueue) -> int:
        return self._joined().max_offset(core_queue(mq))

    def min_offset(self, mq: CoreMessageQueue) -> int:
        return self._joined().min_offset(core_queue(mq))

    def search_offset(self, mq: CoreMessageQueue, timestamp_ms: int) -> int:
        return self._joined().search_offset(core_queue(mq), timestamp_ms / 1000)

    def update_consume_offset(self, mq: CoreMessageQueue, offset: int) -> None:
        """Commit *offset*, of the message to consume next. It is at the broker when this returns; Java waits 5 s."""
        queue = core_queue(mq)
        opened, member = self._joined(), self._member
        # The member stores the offsets of its queues again from time to time, so it has to know.
        if not (member is not None and queue in member.assignment and _commit_at(member, queue, offset)):
            opened.commit_offset(self._group, queue, offset)
        self._offsets[queue] = offset

    def fetch_consume_offset(self, mq: CoreMessageQueue, from_store: bool) -> int:
        """Return the committed offset of *mq*, -1 when there is none; not *from_store* the last one committed here."""
        queue = core_queue(mq)
        if not from_store and queue in self._offsets:
            return self._offsets[queue]
        opened, member = self._joined(), self._member
        is_local = self._settings.get("message_model") == str(MessageModel.BROADCASTING)
        if is_local and member is not None and queue in member.assignment:
            offset = member.committed(queue)
        else:
            offset = opened.committed_offset(self._group, queue)
        return -1 if offset is None else offset

    # Failures.

    def send_message_back(
        self, msg: MessageExt, delay_level: int, broker_name: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Give *msg* back to its broker, for the retry topic of the group: ``%RETRY%group``, which has to be pulled.

        *delay_level* 0 lets the broker say how long it waits there, longer each time; -1 makes it a dead letter.
        """
        self._joined().send_back(
            consumer_group or self._group,
            msg.received,
            delay_level=delay_level,
            max_reconsume_times=self._max_reconsume_times,
            broker_name=broker_name,
        )

    def _joined(self) -> client.Client:
        if self._member is None:
            raise ClientError("The consumer service state not OK, CREATE_JUST: call start first")
        return self._running_client()


def _commit_at(member: PullConsumer, queue: CoreMessageQueue, offset: int) -> bool:
    """Commit at the member; False if the queue has just become another member's."""
    try:
        member.commit({queue: offset})
    except (ClientError, ClientStateError):
        return False
    return True


def _pull_for(pull_now: Callable[[], PullResult], callback: PullCallback) -> None:
    try:
        found = pull_now()
    except Exception as error:  # the callback hears of every failure, as nobody else does
        callback.on_exception(error)
    else:
        callback.on_success(found)
