"""``python -m mqcore.testing.server``: the broker of a test, which obeys the test process and ends with it.

It is the same ``BrokerServer`` as ``python -m mqcore.broker`` runs. When the test process dies, by whatever signal, the
kernel says so through its pidfd; then the broker stops, its workers end, and a temporary directory is removed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from typing import BinaryIO

from mqcore import clock
from mqcore.broker.nursery import Nursery
from mqcore.broker.server import BrokerServer
from mqcore.codes import PermName, RequestCode, ResponseCode
from mqcore.config import load
from mqcore.config.command_line import EXIT_START_FAILED
from mqcore.errors import BrokerError, ConfigError, MQError
from mqcore.process_log import log_to_stderr
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_request
from mqcore.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from mqcore.testing.server.orders import ADVANCE, CREATE_TOPIC, STOP, Answer, Launch, Order
from mqcore.transport.client import RemotingClient

logger = logging.getLogger("mqcore.testing")

CALL_TIMEOUT_S = 30.0


class TestedBroker:
    """One broker, from the launch to the end."""

    def __init__(
        self, launch: Launch, orders: asyncio.StreamReader, answers: BinaryIO, nursery: Nursery | None
    ) -> None:
        self._launch = launch
        self._orders = orders
        self._answers = answers
        self._server = BrokerServer(load(overrides=launch.settings, environment={}), nursery=nursery)
        self._caller = RemotingClient()
        self.is_orphan = False

    async def run(self, began: float) -> int:
        """Serve until told to stop, or until the test process has gone; the exit status."""
        for at_ms, duration_ms in self._launch.skips:
            clock.skip(at_ms, duration_ms)
        try:
            await self._server.start()
        except (MQError, OSError) as error:
            logger.error("start failed error=%s", error)
            taken = isinstance(error, ConfigError | OSError) and "listen" in str(error)
            self._tell(Answer(ok=False, error=str(error), ports_taken=taken))
            return EXIT_START_FAILED
        try:
            for topic, queues in self._launch.topics.items():
                await self._create_topic(topic, queues)
            self._tell(Answer(ok=True, seconds=time.monotonic() - began))
            await self._obey()
        except MQError as error:
            self._tell(Answer(ok=False, error=str(error)))
            return EXIT_START_FAILED
        finally:
            await self._caller.close()
            await self._server.stop()
        return 0

    async def _obey(self) -> None:
        """Follow orders until STOP, the end of the orders, or the end of the test process."""
        gone = asyncio.create_task(process_ended(self._launch.parent_pid))
        try:
            while True:
                line = asyncio.create_task(self._orders.readline())
                await asyncio.wait((line, gone), return_when=asyncio.FIRST_COMPLETED)
                if not line.done() or not line.result():
                    line.cancel()
                    self.is_orphan = True
                    return
                order = Order.decode(line.result())
                if order.what == STOP:
                    return
                self._tell(await self._follow(order))
        finally:
            gone.cancel()

    async def _follow(self, order: Order) -> Answer:
        try:
            if order.what == ADVANCE:
                clock.skip(order.at_ms, order.duration_ms)
            elif order.what == CREATE_TOPIC:
                await self._create_topic(order.topic, order.queues)
        except MQError as error:
            return Answer(ok=False, error=str(error))
        return Answer(ok=True)

    async def _create_topic(self, topic: str, queues: int) -> None:
        address = str(self._server.core.broker.address)
        header = encode_request(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(PermName.READ | PermName.WRITE),
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=header)
        answer = await self._caller.invoke(address, command, CALL_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark or "", address).at(topic=topic)

    def _tell(self, answer: Answer) -> None:
        """Write *answer* for the test process; nobody may be left to read it."""
        try:
            self._answers.write(answer.encode())
            self._answers.flush()
        except BrokenPipeError:
            logger.info("the test process has gone")


async def process_ended(pid: int) -> None:
    """Return when process *pid* has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def serve(began: float, answers: BinaryIO, nursery: Nursery | None) -> int:
    """Read the launch from standard input, and run that broker."""
    # The terminal's interrupt is meant for the test process, which then stops this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The kernel sends this one when the test process dies while a worker is stopped; there is still tidying to do.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    first = await orders.readline()
    if not first:
        return EXIT_START_FAILED
    launch = Launch.decode(first)
    try:
        broker = TestedBroker(launch, orders, answers, nursery)
    except ConfigError as error:
        answers.write(Answer(ok=False, error=str(error)).encode())
        return EXIT_START_FAILED
    try:
        return await broker.run(began)
    finally:
        transport.close()
        if broker.is_orphan:
            shutil.rmtree(launch.directory, ignore_errors=True)


def main() -> int:
    began = time.monotonic()
    # Answers go where no worker can write to.
    answers_fd = os.dup(1)
    os.dup2(2, 1)
    nursery = Nursery.fork()
    log_to_stderr("broker")
    try:
        with os.fdopen(answers_fd, "wb") as answers:
            return asyncio.run(serve(began, answers, nursery))
    finally:
        if nursery is not None:
            nursery.close()


if __name__ == "__main__":
    sys.exit(main())
