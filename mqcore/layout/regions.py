"""Where what lies in the shared segment, and what must hold among all tables."""

from __future__ import annotations

from mqcore.layout.boards import (
    CRADLE_ROW,
    EPOCH_ROW,
    GROUP_ROW,
    LATENCY_BOUNDS_US,
    LATENCY_ROW,
    OFFSET_ROW,
    PUT_TALLY_BOUNDS_MS,
    QUEUE_ROW,
    QUOTA_ROW,
    RING_ENTRY,
    RING_HEAD,
    SLAVE_ROW,
    STORE_BOARD,
    TOPIC_ROW,
    WORKER_ROW,
)
from mqcore.layout.disk import (
    BLANK_RECORD,
    CONSUME_QUEUE_FILE_UNITS,
    CONSUME_QUEUE_UNIT,
    FILE_END_MIN_BLANK_SIZE,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    RECORD_MIDDLE,
    RECORD_OVERHEAD_MAX,
    RECORD_SIZE_MIN,
    RECORD_STORE_TIME,
    TOPIC_SIZE_MAX,
)
from mqcore.layout.messages import PULL_RANGE, PULL_REPLY, PULL_REQUEST
from mqcore.layout.sets import constants
from mqcore.layout.sizes import (
    ADDRESS_COUNTS,
    ARRIVAL_RING_BYTES,
    CONNECTION_GENERATION_BITS,
    CONNECTION_SLOT_BITS,
    CRADLE_CAPACITY,
    CRADLE_SIZE,
    EPOCH_ROWS,
    GROUP_CAPACITY,
    GROUP_MEMBERS_MAX,
    LATENCY_KINDS,
    LOG_PLACES_MAX,
    OFFSET_CAPACITY,
    PAGE_SIZE,
    PULL_RANGES_MAX,
    PULL_RING_BYTES,
    PULL_STRINGS_MAX,
    PULL_WORKERS_MAX,
    PUSHES_MAX,
    QUEUE_CAPACITY,
    QUOTA_ROWS,
    SEND_WORKERS_MAX,
    SLAVE_CAPACITY,
    TICKETS_MAX,
    TOPIC_CAPACITY,
    WORD_BITS,
    WORKER_CAPACITY,
)
from mqcore.layout.tables import Region

REGIONS: tuple[Region, ...] = (
    Region("board", STORE_BOARD, 1, STORE_BOARD.size),
    Region("workers", WORKER_ROW, WORKER_CAPACITY, WORKER_ROW.size),
    Region("topics", TOPIC_ROW, TOPIC_CAPACITY, TOPIC_ROW.size),
    Region("topic_index", None, 2 * TOPIC_CAPACITY, 4),
    Region("queues", QUEUE_ROW, QUEUE_CAPACITY, QUEUE_ROW.size),
    Region("queue_index", None, 2 * QUEUE_CAPACITY, 4),
    Region("groups", GROUP_ROW, GROUP_CAPACITY, GROUP_ROW.size),
    Region("group_index", None, 2 * GROUP_CAPACITY, 4),
    Region("offsets", OFFSET_ROW, OFFSET_CAPACITY, OFFSET_ROW.size),
    Region("offset_index", None, 2 * OFFSET_CAPACITY, 4),
    Region("offset_changes", None, OFFSET_CAPACITY // WORD_BITS, WORD_BITS // 8),
    Region("offset_change_words", None, OFFSET_CAPACITY // WORD_BITS**2, WORD_BITS // 8),
    Region("cradles", CRADLE_ROW, CRADLE_CAPACITY, CRADLE_ROW.size),
    Region("cradle_units", None, CRADLE_CAPACITY, CRADLE_SIZE),
    Region("topic_epochs", EPOCH_ROW, EPOCH_ROWS, EPOCH_ROW.size),
    Region("group_epochs", EPOCH_ROW, EPOCH_ROWS, EPOCH_ROW.size),
    Region("pull_request_rings", None, SEND_WORKERS_MAX * PULL_WORKERS_MAX, RING_HEAD.size + PULL_RING_BYTES),
    Region("pull_reply_rings", None, SEND_WORKERS_MAX * PULL_WORKERS_MAX, RING_HEAD.size + PULL_RING_BYTES),
    Region("arrival_rings", None, PULL_WORKERS_MAX, RING_HEAD.size + ARRIVAL_RING_BYTES),
    Region("slaves", SLAVE_ROW, SLAVE_CAPACITY, SLAVE_ROW.size),
    Region("quotas", QUOTA_ROW, QUOTA_ROWS, QUOTA_ROW.size),
    Region("address_counts", None, SEND_WORKERS_MAX * ADDRESS_COUNTS, 4),
    Region("group_nonces", None, GROUP_MEMBERS_MAX, 8),
    Region("latencies", LATENCY_ROW, SEND_WORKERS_MAX * LATENCY_KINDS, LATENCY_ROW.size),
)


def region_offsets() -> dict[str, int]:
    """Where each region starts in the segment, bytes; every region starts on a page."""
    at = 0
    offsets: dict[str, int] = {}
    for region in REGIONS:
        offsets[region.name] = at
        at += -(-region.size // PAGE_SIZE) * PAGE_SIZE
    offsets["end"] = at
    return offsets


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


# A record without body, topic and properties has both hosts of IPv4 (4 bytes and a port of 4), and the three lengths.
assert RECORD_HEAD.size + 8 + RECORD_STORE_TIME.size + 8 + RECORD_MIDDLE.size + 4 + 1 + 2 == RECORD_SIZE_MIN
assert BLANK_RECORD.size == FILE_END_MIN_BLANK_SIZE
# The same with both hosts of IPv6, 12 bytes longer each, and topic and properties as long as their lengths can say.
assert RECORD_SIZE_MIN + 2 * 12 + TOPIC_SIZE_MAX + PROPERTIES_SIZE_MAX <= RECORD_OVERHEAD_MAX
# A store that RocketMQ made with its defaults has 300,000 units in a file.
assert CONSUME_QUEUE_FILE_UNITS * CONSUME_QUEUE_UNIT.size == 6_000_000
# Places are found by masking: hash indexes (twice as long as their rows), epochs, tickets, rings.
assert all(map(is_power_of_two, (TOPIC_CAPACITY, QUEUE_CAPACITY, GROUP_CAPACITY, OFFSET_CAPACITY)))
assert all(map(is_power_of_two, (EPOCH_ROWS, TICKETS_MAX, PUSHES_MAX, PULL_RING_BYTES, ARRIVAL_RING_BYTES)))
assert all(map(is_power_of_two, (QUOTA_ROWS, ADDRESS_COUNTS)))
# Words are stored and loaded whole, so each lies on a boundary of 8 bytes: rows, and what is behind a ring's heads.
assert all(region.row_size % 8 == 0 for region in REGIONS if region.row is not None)
assert all(size % 8 == 0 for size in (RING_HEAD.size, RING_ENTRY.size, PULL_RING_BYTES, ARRIVAL_RING_BYTES, PAGE_SIZE))
# The broker process, send and pull workers, reput and flush.
assert 1 + SEND_WORKERS_MAX + PULL_WORKERS_MAX + 2 <= WORKER_CAPACITY
# An entry goes into an empty ring wherever its tail stands: it may have to leave out nearly its own length at the end.
assert 2 * (RING_ENTRY.size + PULL_REPLY.size + PULL_RANGES_MAX * PULL_RANGE.size) <= PULL_RING_BYTES
assert 2 * (RING_ENTRY.size + PULL_REQUEST.size + PULL_STRINGS_MAX) <= PULL_RING_BYTES
# Linux' IOV_MAX.
assert PULL_RANGES_MAX + 1 <= 1024
assert LOG_PLACES_MAX <= 32
assert TOPIC_ROW.size - TOPIC_ROW.offsets["name"] >= TOPIC_SIZE_MAX
# An id is positive.
assert (SEND_WORKERS_MAX - 1).bit_length() + CONNECTION_GENERATION_BITS + CONNECTION_SLOT_BITS < 64
assert len([name for name in LATENCY_ROW.offsets if name.startswith("count_")]) == len(LATENCY_BOUNDS_US) + 1
assert len([name for name in STORE_BOARD.offsets if name.startswith("put_tally_")]) == len(PUT_TALLY_BOUNDS_MS) + 1

assert len(constants("LatencyKind")) == LATENCY_KINDS
