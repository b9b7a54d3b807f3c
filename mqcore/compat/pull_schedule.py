"""Java's MQPullConsumerScheduleService: calls a program again and again for each queue of this member, to pull it."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable

from mqcore.client.session.handler_threads import HandlerThreads
from mqcore.compat.config import AclClientRPCHook
from mqcore.compat.enums import MessageModel
from mqcore.compat.message import MessageQueue
from mqcore.compat.pull import DefaultMQPullConsumer, MessageQueueListener

logger = logging.getLogger(__name__)

PULL_THREADS = 20
PULL_DELAY_MS = 200
FAILED_DELAY_MS = 1000


class PullTaskContext:
    """What a task is called with: the consumer to pull with, and when the task is to be called again."""

    def __init__(self, pull_consumer: DefaultMQPullConsumer) -> None:
        self._pull_consumer = pull_consumer
        self._delay_ms = PULL_DELAY_MS

    def get_pull_consumer(self) -> DefaultMQPullConsumer:
        return self._pull_consumer

    def set_pull_consumer(self, pull_consumer: DefaultMQPullConsumer) -> None:
        self._pull_consumer = pull_consumer

    def get_pull_next_delay_time_millis(self) -> int:
        return self._delay_ms

    def set_pull_next_delay_time_millis(self, delay_ms: int) -> None:
        """Set how long the next call for this queue waits."""
        self._delay_ms = delay_ms


class PullTaskCallback:
    """Pulls a queue. Override the method, or give a function."""

    def __init__(self, function: Callable[[MessageQueue, PullTaskContext], object] | None = None) -> None:
        self._function = function

    def do_pull_task(self, mq: MessageQueue, context: PullTaskContext) -> None:
        if self._function is not None:
            self._function(mq, context)


class _Task:
    """The calls for one queue, one after the other, until it is another member's."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.is_cancelled = False


class _Timetable:
    """Runs functions in threads after a delay. Nothing begins after ``close``; what runs then is not waited for."""

    def __init__(self, thread_count: int, name: str) -> None:
        self._threads = HandlerThreads(thread_count, name)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._news = threading.Condition()
        self._closed = False
        threading.Thread(target=self._run, name=f"{name} clock", daemon=True).start()

    def add(self, delay_ms: int, function: Callable[[], None]) -> None:
        with self._news:
            self._number += 1
            heapq.heappush(self._due, (time.monotonic() + max(0, delay_ms) / 1000, self._number, function))
            self._news.notify()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()
        self._threads.shutdown(cancel_futures=True)

    def _run(self) -> None:
        with self._news:
            while not self._closed:
                left_s = self._due[0][0] - time.monotonic() if self._due else None
                if left_s is not None and left_s <= 0:
                    self._threads.submit(heapq.heappop(self._due)[2])
                else:
                    self._news.wait(left_s)


class MQPullConsumerScheduleService:
    """Calls the callback of a topic for each of its queues that the group's division gives to this member.

    Register callbacks, set up ``get_default_mq_pull_consumer()``, ``start``, ``shutdown``. One queue is pulled by one
    thread at a time, *pull_thread_nums* of them at once; a callback that raises is called again after a second.
    """

    def __init__(self, consumer_group: str = "", rpc_hook: AclClientRPCHook | None = None) -> None:
        self._consumer = DefaultMQPullConsumer(consumer_group, rpc_hook)
        self._callbacks: dict[str, PullTaskCallback] = {}
        self._tasks: dict[MessageQueue, _Task] = {}
        self._lock = threading.Lock()
        self._thread_count = PULL_THREADS
        self._timetable: _Timetable | None = None

    # Settings.

    def get_default_mq_pull_consumer(self) -> DefaultMQPullConsumer:
        """Return the consumer that pulls, to be set up before ``start``."""
        return self._consumer

    def set_default_mq_pull_consumer(self, consumer: DefaultMQPullConsumer) -> None:
        self._consumer = consumer

    def get_pull_thread_nums(self) -> int:
        return self._thread_count

    def set_pull_thread_nums(self, count: int) -> None:
        self._thread_count = count

    def set_message_model(self, model: MessageModel) -> None:
        self._consumer.set_message_model(model)

    def get_callback_table(self) -> dict[str, PullTaskCallback]:
        return self._callbacks

    def register_pull_task_callback(
        self, topic: str, callback: PullTaskCallback | Callable[[MessageQueue, PullTaskContext], object]
    ) -> None:
        """Let *callback*, one for each topic, pull the queues of *topic*."""
        self._callbacks[topic] = callback if isinstance(callback, PullTaskCallback) else PullTaskCallback(callback)
        self._consumer.register_message_queue_listener(topic, None)

    # Life cycle.

    def start(self) -> None:
        self._timetable = _Timetable(self._thread_count, f"PullMsgThread-{self._consumer.get_consumer_group()}")
        self._consumer.set_message_queue_listener(MessageQueueListener(self._on_changed))
        try:
            self._consumer.start()
        except BaseException:
            self._timetable.close()
            raise

    def shutdown(self) -> None:
        """Begin no task any more, leave the group, close the connections. Tasks in hand are not waited for."""
        with self._lock:
            for task in self._tasks.values():
                task.is_cancelled = True
            self._tasks.clear()
        if self._timetable is not None:
            self._timetable.close()
        self._consumer.shutdown()

    # Tasks.

    def put_task(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """Pull exactly *queues* of *topic* from now on."""
        wanted = set(queues)
        with self._lock:
            for queue in [queue for queue in self._tasks if queue.topic == topic and queue not in wanted]:
                self._tasks.pop(queue).is_cancelled = True
            for queue in wanted - self._tasks.keys():
                self._tasks[queue] = _Task(queue)
                self._schedule(self._tasks[queue], 0)

    def _on_changed(self, topic: str, _everything: set[MessageQueue], divided: set[MessageQueue]) -> None:
        # With broadcasting all queues are this member's.
        self.put_task(topic, divided)

    def _schedule(self, task: _Task, delay_ms: int) -> None:
        if self._timetable is not None:
            self._timetable.add(delay_ms, lambda: self._run(task))

    def _run(self, task: _Task) -> None:
        if task.is_cancelled:
            return
        callback = self._callbacks.get(task.queue.topic)
        if callback is None:
            logger.warning("no callback for the topic, its queue is not pulled queue=%s", task.queue)
            return
        context = PullTaskContext(self._consumer)
        try:
            callback.do_pull_task(task.queue, context)
        except Exception:
            context.set_pull_next_delay_time_millis(FAILED_DELAY_MS)
            logger.exception("pull task failed queue=%s", task.queue)
        if not task.is_cancelled:
            self._schedule(task, context.get_pull_next_delay_time_millis())
