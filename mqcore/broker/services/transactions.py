"""Open transactions: which half messages nobody has ended, and the question to a producer what became of them.

Half messages lie in a queue of the half topic, and op messages in a queue of their own say which are done with. A round
reads what op messages have come, passes over the half messages that are done with, and looks at each of the others: one
that is old enough is put behind the others again, one check richer, and a producer of its group is asked about the
copy. How far both queues are done with are consumer offsets of the group CID_RMQ_SYS_TRANS, as in RocketMQ, so a store
goes from one broker to the other with its transactions open.

The op message which says that a half message lies elsewhere is stored together with the copy (``put_pair``): a death at
any moment leaves one of the two to be asked about. RocketMQ remembers this by the saved offset alone, and asks twice
after a crash. Where the end of a transaction comes after its half message was put again, the copy is done with, too;
RocketMQ asks about the copy, and delivers again what has been delivered.

This does not stand on ``SystemQueues``, whose loop hands one unit after the other to its service: of the many half
messages that are done with none is looked at here, and no object made.
Source: RocketMQ broker/transaction/queue/TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java,
AbstractTransactionalMessageCheckListener.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from enum import Enum, auto
from typing import Final

from mqcore import clock as machine_clock
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.offsets import NO_OFFSET, ConsumerOffsetManager
from mqcore.broker.ports import Clock, InnerMessage, MessageSink, PutResult, StoreView
from mqcore.broker.producers import ProducerManager
from mqcore.broker.services.done_halves import DoneHalvesMap
from mqcore.broker.statistics import BrokerStatsManager
from mqcore.broker.topics import READ_WRITE, TopicConfigManager
from mqcore.broker.transaction_records import DISCARDED_QUEUE_COUNT, discarded_half, op_message, renewed_half
from mqcore.codes import RemotingFlag, RequestCode
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_request
from mqcore.protocol.message import MessageExt
from mqcore.protocol.message_decoder import decode_message, encode_message
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_CONSUMER_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from mqcore.protocol.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from mqcore.protocol.transactions import HALF_QUEUE_ID

logger = logging.getLogger(__name__)

ROUND_S_MAX: Final = 60.0
OPS_PER_READ: Final = 4096
UNITS_PER_READ: Final = 64
CHECKS_PER_PAUSE: Final = 64
"""After so many half messages that were looked at, others get the event loop."""

UNDISPATCHED_BYTES_MAX: Final = 2**20
"""With more of the log not dispatched, ends of transactions may be there that no queue shows yet: nobody is asked."""

COPIES_MAX: Final = 1_000_000
"""How many half messages that were put again are remembered by where they were first."""

RETRY_S: Final = 1.0
HALF_QUEUE_COUNT: Final = 1
HOUR_MS: Final = 3_600_000


class Verdict(Enum):
    """What is to become of a half message that is not done with."""

    WAIT = auto()
    """It is young, and so are those behind it."""
    ENDED = auto()
    """Its transaction was ended where it lay first."""
    ASK = auto()
    KEEP_AWAY = auto()
    """Nobody is to be asked about it yet, nor are those behind it to wait for it."""
    GIVE_UP = auto()


class TransactionService:
    """The open transactions of one broker."""

    def __init__(
        self,
        settings: LiveSettings,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        producers: ProducerManager,
        sink: MessageSink,
        store: StoreView,
        statistics: BrokerStatsManager,
        address: HostAddress,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._producers = producers
        self._sink = sink
        self._store = store
        self._statistics = statistics
        self._address = address
        self._clock = clock
        self._map: DoneHalvesMap | None = None
        # Copies that are not known to be done with, by the place where their half message was first.
        self._copies: dict[int, int] = {}
        # The positions that were saved last; others in the table are somebody else's, and a new beginning.
        self._saved = (NO_OFFSET, NO_OFFSET)
        self._began_before = self._began_op = self._op_before = 0
        # How many half messages of a group could not be asked about in this round.
        self._unasked: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # Life cycle.

    def start(self) -> None:
        """Begin the rounds, the first one an interval from now; the store must have recovered."""
        self._task = asyncio.create_task(self._run(), name="transactions")

    async def stop(self) -> None:
        """Ask about nothing more. Positions are saved with the other consumer offsets."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def look_again(self) -> None:
        """The settings have changed."""
        self._changed.set()

    async def make_topics(self) -> None:
        """Have the half topic, which like RocketMQ's is made with the first half message or the first round."""
        await self._topics.create(TRANS_HALF_TOPIC, HALF_QUEUE_COUNT, READ_WRITE, 0)

    async def _run(self) -> None:
        pause_s: float | None = None
        while True:
            began = machine_clock.monotonic_s()
            # The interval may become shorter while it passes.
            while (left_s := began + self._interval_s(pause_s) - machine_clock.monotonic_s()) > 0:
                self._changed.clear()
                try:
                    async with asyncio.timeout(left_s):
                        await self._changed.wait()
                except TimeoutError:
                    break
            try:
                pause_s = await self.check()
            except Exception:  # the top loop of this task
                logger.exception("a round of looking for open transactions failed")
                pause_s = None

    def _interval_s(self, pause_s: float | None) -> float:
        interval_s = self._settings.broker.transaction_check_interval_ms / 1000
        return interval_s if pause_s is None else min(pause_s, interval_s)

    # A round.

    async def check(self) -> float | None:
        """Look for open transactions once; return after how many seconds to come again, None for the interval."""
        await self.make_topics()
        if not self._store.has_queue(TRANS_HALF_TOPIC, HALF_QUEUE_ID):
            return None
        if self._store.facts().dispatch_behind_bytes > UNDISPATCHED_BYTES_MAX:
            return RETRY_S
        start = self._clock()
        known = self._positions()
        for topic in (TRANS_OP_HALF_TOPIC, TRANS_HALF_TOPIC):
            self._statistics.count_own_read(topic, TRANS_CONSUMER_GROUP, 0, 0)  # the one that finds the queue's end
        await self._read_ops(known)
        is_whole = await self._look_at_halves(known, start)
        self._commit(known)
        for group, count in self._unasked.items():
            logger.warning("nobody can be asked about transactions group=%s count=%d", group, count)
        self._unasked.clear()
        return None if is_whole else RETRY_S

    def _positions(self) -> DoneHalvesMap:
        """Return what is known of the queues; what somebody has moved meanwhile is taken as it is, and read anew."""
        half, op = self._table_position(TRANS_HALF_TOPIC), self._table_position(TRANS_OP_HALF_TOPIC)
        if self._map is None or (half, op) != self._saved:
            self._saved = half, op
            lowest_half, lowest_op = self._lowest(TRANS_HALF_TOPIC), self._lowest(TRANS_OP_HALF_TOPIC)
            if half > self._store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID):
                # It is not the queue that it was: everything in it is looked at.
                half, op = lowest_half, lowest_op
            if op > self._store.max_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID):
                op = lowest_op
            half, op = max(half, lowest_half), max(op, lowest_op)
            logger.info("transactions are looked for from half_offset=%d op_offset=%d", half, op)
            self._map = DoneHalvesMap(half, op)
            self._copies.clear()
            self._began_before = self._store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
            self._began_op = self._op_before = op
        return self._map

    def _table_position(self, topic: str) -> int:
        return self._offsets.query(TRANS_CONSUMER_GROUP, topic, HALF_QUEUE_ID)

    def _lowest(self, topic: str) -> int:
        return max(self._store.min_offset(topic, HALF_QUEUE_ID), 0)

    async def _read_ops(self, known: DoneHalvesMap) -> None:
        known.op_next = max(known.op_next, self._lowest(TRANS_OP_HALF_TOPIC))
        end = self._store.max_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID)
        while known.op_next < end:
            run = await self._store.done_halves(known.op_next, OPS_PER_READ)
            if run.next_offset == known.op_next:
                logger.warning("op messages cannot be read op_offset=%d", known.op_next)
                return
            self._count_read(TRANS_OP_HALF_TOPIC, len(run.ended), run.size)
            # Asked for behind the op messages: whatever they speak of is there.
            late = known.add(run, self._store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID))
            for number, half_offset in enumerate(late):
                if number % CHECKS_PER_PAUSE == 0:
                    await asyncio.sleep(0)
                copy = self._copies.pop(half_offset, None)
                if copy is not None:
                    await self._end(known, copy)
                else:
                    # Put again more than once, in an earlier life: the copy that is open knows the first place only.
                    known.late[self._first_place(half_offset)] = None

    def _first_place(self, half_offset: int) -> int:
        """Return where the half message that lies, or lay, at *half_offset* was first, if that can still be read."""
        for unit in self._store.read_units(TRANS_HALF_TOPIC, HALF_QUEUE_ID, half_offset, 1):
            record = self._store.look_message(unit.physical_offset, unit.record_size)
            if record is not None:
                properties = decode_message(record, decompress_body=False).properties
                return _number(properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET), default=half_offset)
        return half_offset

    async def _look_at_halves(self, known: DoneHalvesMap, start: int) -> bool:
        """Pass over what is done with and deal with what is not, up to the first that is young; False: come soon."""
        deadline = machine_clock.monotonic_s() + ROUND_S_MAX
        at = max(known.half_position, self._lowest(TRANS_HALF_TOPIC))
        end = self._store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        is_whole, looked_at = True, 0
        while (at := known.next_open(at, end)) < end:
            units = self._store.read_units(TRANS_HALF_TOPIC, HALF_QUEUE_ID, at, UNITS_PER_READ)
            if not units:
                break
            for unit in units:
                if known.next_open(unit.queue_offset, end) != unit.queue_offset:
                    continue
                record = self._store.look_message(unit.physical_offset, unit.record_size)
                if record is not None:
                    self._count_read(TRANS_HALF_TOPIC, 1, len(record))
                    half = decode_message(record, decompress_body=False)
                    verdict = self._judge(known, half, start)
                    if verdict is Verdict.WAIT:
                        known.pass_to(unit.queue_offset)
                        return True
                    if not await self._deal_with(known, half, verdict):
                        known.pass_to(unit.queue_offset)
                        return False
                known.mark(unit.queue_offset)
                looked_at += 1
                if looked_at % CHECKS_PER_PAUSE == 0:
                    await asyncio.sleep(0)
            at = units[-1].queue_offset + 1
            if machine_clock.monotonic_s() > deadline:
                is_whole = False
                break
        known.pass_to(at)
        return is_whole

    def _count_read(self, topic: str, nums: int, size: int) -> None:
        """Count what was read as RocketMQ does; op messages that only say of a move are not known there."""
        if nums > 0:
            self._statistics.count_own_read(topic, TRANS_CONSUMER_GROUP, nums, size)

    def _judge(self, known: DoneHalvesMap, half: MessageExt, start: int) -> Verdict:
        properties, settings = half.properties, self._settings
        if _number(properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)) in known.late:
            return Verdict.ENDED
        age = self._clock() - half.born_timestamp
        checks = _number(properties.get(PROPERTY_TRANSACTION_CHECK_TIMES), default=0)
        if checks >= settings.broker.transaction_check_max or (age > settings.store.file_reserved_time_hours * HOUR_MS):
            return Verdict.GIVE_UP
        if half.store_timestamp >= start:
            return Verdict.WAIT
        immunity = properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is not None:
            seconds = _number(immunity)
            limit = settings.broker.transaction_time_out_ms if seconds == -1 else seconds * 1000
            return Verdict.KEEP_AWAY if age < limit else Verdict.ASK
        return Verdict.WAIT if 0 <= age < settings.broker.transaction_time_out_ms else Verdict.ASK

    async def _deal_with(self, known: DoneHalvesMap, half: MessageExt, verdict: Verdict) -> bool:
        """Do what *verdict* says; False if that could not be stored."""
        if verdict is Verdict.ENDED:
            return await self._end(known, half.queue_offset)
        if verdict is Verdict.GIVE_UP:
            logger.warning(
                "a transaction is given up unique_key=%s topic=%s checks=%s",
                half.properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), half.properties.get(PROPERTY_REAL_TOPIC),
                half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES),
            )  # fmt: skip
            await self._topics.create(TRANS_CHECK_MAX_TIME_TOPIC, DISCARDED_QUEUE_COUNT, READ_WRITE, 0)
            return (await self._move(half, discarded_half(half))).is_stored
        checks = _number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES), default=0)
        # RocketMQ counts the rounds in which nobody may be asked, too, so that one whose time of immunity is longer
        # than 15 rounds is given up without a question.
        copy = renewed_half(half, checks + 1 if verdict is Verdict.ASK else checks)
        result = await self._move(half, copy)
        if not result.is_stored:
            return False
        self._note_copy(half, copy, result)
        if verdict is Verdict.ASK:
            self._ask(half, copy, result)
        return True

    async def _move(self, half: MessageExt, copy: InnerMessage) -> PutResult:
        op = op_message(half.queue_offset, self._address, self._clock(), is_moved=True)
        result = await self._sink.put_pair(copy, op)
        if not result.is_stored:
            logger.error("a half message could not be put again topic=%s status=%s", copy.topic, result.status)
        return result

    async def _end(self, known: DoneHalvesMap, half_offset: int) -> bool:
        """Say that the half at *half_offset*, a copy, is done with: its transaction was ended where it lay before."""
        result = await self._sink.put(op_message(half_offset, self._address, self._clock()))
        if result.is_stored:
            known.mark(half_offset)
        return result.is_stored

    def _note_copy(self, half: MessageExt, copy: InnerMessage, result: PutResult) -> None:
        first = _number(copy.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET))
        for place in {first, half.queue_offset}:
            self._copies[place] = result.queue_offset
        if len(self._copies) > COPIES_MAX:
            del self._copies[next(iter(self._copies))]

    def _commit(self, known: DoneHalvesMap) -> None:
        # The op position that fitted the half position of the round before: whoever saves the table between the two, or
        # sees one of them only, has a pair that is safe to begin at.
        half, op = known.half_position, self._op_before
        self._op_before = known.op_position
        if half < self._began_before:
            # Until all that was there at the start is passed, an end that came late may be of a copy that is not
            # known yet: it is to be read again after another start.
            op = min(op, self._began_op)
        if (half, op) == (0, 0) and self._saved == (NO_OFFSET, NO_OFFSET):
            return  # as in RocketMQ, the group is known once it has passed something
        saved = half, op
        for topic, position, before in zip((TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC), saved, self._saved, strict=True):
            if position != before:
                self._offsets.commit(TRANS_CONSUMER_GROUP, topic, HALF_QUEUE_ID, position, "the broker")
        self._saved = saved

    # The question.

    def _ask(self, half: MessageExt, copy: InnerMessage, result: PutResult) -> None:
        """Ask a producer of the group about *copy*, which *result* has stored. Nobody waits for the answer."""
        group = copy.properties.get(PROPERTY_PRODUCER_GROUP, "")
        channel = self._producers.available_channel(group)
        unique_id = copy.properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if channel is None:
            self._unasked[group] += 1
            return
        asked = MessageExt(
            copy.properties.get(PROPERTY_REAL_TOPIC, ""),
            copy.body,
            flag=copy.flag,
            properties=half.properties | copy.properties,
            queue_id=_number(copy.properties.get(PROPERTY_REAL_QUEUE_ID), default=0),
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            sys_flag=copy.sys_flag,
            born_timestamp=copy.born_timestamp,
            born_host=copy.born_host,
            store_timestamp=half.store_timestamp,
            store_host=half.store_host,
            reconsume_times=copy.reconsume_times,
            body_crc=half.body_crc,
        )
        fields = encode_request(
            RequestCode.CHECK_TRANSACTION_STATE,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=result.physical_offset,
            msg_id=unique_id,
            transaction_id=unique_id,
            offset_msg_id=result.message_id,
        )
        channel.send(
            RemotingCommand(
                RequestCode.CHECK_TRANSACTION_STATE,
                flag=int(RemotingFlag.ONEWAY),
                ext_fields=fields,
                body=encode_message(asked),
            )
        )


def _number(text: str | None, default: int = -1) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else default
