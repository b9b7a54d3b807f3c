"""How many there may be of what, in shared memory and in workers."""

from __future__ import annotations

from mqcore.layout.disk import CONSUME_QUEUE_UNIT

PAGE_SIZE = 4096
TOPIC_CAPACITY = 1 << 16
QUEUE_CAPACITY = 1 << 20
GROUP_CAPACITY = 1 << 16
OFFSET_CAPACITY = 1 << 20
WORD_BITS = 64
METADATA_FLAG = 0x4D514D45
"""Record_head.flag of the records by which a failover group tells of its tables, by which they are found quickly."""
METADATA_DROP_FLAG = 0x4D514D44
"""The same of a record that drops queues."""
CRADLE_CAPACITY = 1 << 10
CRADLE_SIZE = 1 << 14
CRADLE_UNITS = CRADLE_SIZE // CONSUME_QUEUE_UNIT.size
SEND_WORKERS_MAX = 4
PULL_WORKERS_MAX = 4
LATENCY_KINDS = 4
"""Rows of latencies that each send worker has: one for each LatencyKind."""
WORKER_CAPACITY = 16
SLAVE_CAPACITY = 8
"""Slaves that may be connected to a master at a time."""
GROUP_MEMBERS_MAX = 63
"""Ids in a failover group are below: each has a bit of a positive word."""
EPOCH_ROWS = 1 << 16
"""Names that share a row go stale together, which is rare and costs a question; no number of names is too many."""
FILTER_NAMES_MAX = 64
FILTER_DEPTH_MAX = 160
QUOTA_ROWS = 1 << 16
"""Topics, groups and clients that may use their quotas at a time; beyond it some share."""
QUOTA_PROBES = 8
"""Rows that one of them may have."""
QUOTA_RULES_MAX = 1024
"""Entries of the setting quotas."""
ADDRESS_COUNTS = 1 << 14
"""Counters of connections by address; where two addresses meet in both that each has, they count together."""
TICKETS_MAX = 1 << 16
"""Pulls of one send worker that may be under way at a time."""
PUSHES_MAX = 1 << 14
"""Answers of request-reply that a send worker may have pushed and no asker has taken yet."""
PUSH_NUMBER_BIT = 1 << 30
"""Of the opaques of a send worker's own requests; those of the broker process are below."""
PUSH_TIMEOUT_MS = 10_000
"""For so long an asker may take to say that it has its answer."""
ASKER_SIZE_MAX = 255
"""Bytes of a client id by which a send worker knows an asker; who has a longer one is known to the broker process."""
PULL_RING_BYTES = 1 << 20
ARRIVAL_RING_BYTES = 1 << 20
PULL_STRINGS_MAX = 1 << 15
"""Bytes of a pull's topic, group, subscription and expression type together; a longer one is refused."""
PULL_RANGES_MAX = 1023
"""Messages of one pull reply: one writev takes 1024 parts (IOV_MAX), of which the first is the frame's head."""
LOG_PLACES_MAX = 32
"""Directories that one commit log may lie in; the kernels have a bit for each in a word of 32."""
CONNECTION_SLOT_BITS = 24
"""The lowest bits of a connection's id: its slot in the send worker."""
CONNECTION_GENERATION_BITS = 32
"""Those above: how many connections that worker had before. Then comes the worker's number."""
CONNECTION_LIFE_BITS = 8
"""The highest of the generation's bits: deaths of the worker, so that ids of an earlier life do not come back soon."""
