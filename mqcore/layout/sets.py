"""Sets of integers that Python and the kernels both use."""

from __future__ import annotations

from mqcore.layout.tables import Constants

CONSTANTS: tuple[Constants, ...] = (
    Constants(
        "StoreFlag",
        "bits of store_board.store_flags",
        {
            "NOT_READABLE": 1,
            "NOT_WRITABLE": 2,
            "CONSUME_QUEUE_ERROR": 4,
            "INDEX_ERROR": 8,
            "DISK_FULL": 16,
            "SYNC_FAILED": 32,
            "SHUTTING_DOWN": 64,
            "BROKER_UNWRITABLE": 128,
            "NO_NEXT_FILE": 256,
            "WORKER_MISSING": 1024,
            "PULL_CLOSED": 2048,
            "SLAVE": 4096,
            "NOT_ENOUGH_REPLICAS": 8192,
        },
    ),
    Constants(
        "ReadGate",
        "bits of store_board.read_gates: what must have happened to what is read",
        {"FLUSHED": 1, "CONFIRMED": 2},
    ),
    Constants(
        "TopicWord",
        "topic_row.config: flags, permission and queue counts in one word, so that a reader sees all or nothing",
        {"EXISTS": 1, "SENDABLE": 2, "MULTI_TAG": 4, "PERM_SHIFT": 8, "READ_SHIFT": 16, "WRITE_SHIFT": 32},
    ),
    Constants(
        "WorkerKind",
        "what a worker is",
        {"BROKER": 0, "SEND": 1, "PULL": 2, "REPUT": 3, "FLUSH": 4, "HA": 5, "SCHEDULE": 6, "TIMER": 7},
    ),
    Constants(
        "SlaveState",
        "slave_row.state: REFUSED_AHEAD and BEFORE_FIRST_FILE count for nothing",
        {"FREE": 0, "CONNECTED": 1, "COPYING": 2, "BEFORE_FIRST_FILE": 3, "REFUSED_AHEAD": 4},
    ),
    Constants(
        "HaRole",
        "store_board.ha_role: NONE follows nobody and is followed by nobody",
        {"NONE": 0, "SLAVE": 1, "MASTER": 2},
    ),
    Constants(
        "MasterState",
        "store_board.master_state: what a slave is doing about its master",
        {"UNKNOWN": 0, "CONNECTING": 1, "COPYING": 2, "REFUSED": 3},
    ),
    Constants(
        "LatencyKind",
        "what a latency_row counts: answers to sends that are stored as they should be, and to such that lack disk or "
        "slave; answers with messages to pulls that found some at once, and to such that were held",
        {"SEND": 0, "UNCONFIRMED": 1, "PULL": 2, "HELD": 3},
    ),
    Constants("WorkerCommand", "what the broker process wants of a worker", {"RUN": 0, "DRAIN": 1, "STOP": 2}),
    Constants(
        "WorkerState", "where a worker is in its life", {"STARTING": 0, "RUNNING": 1, "DRAINED": 2, "STOPPED": 3}
    ),
    Constants(
        "LinkKind",
        "what travels between a worker and the broker process",
        {
            "CONNECTED": 1,
            "REQUEST": 2,
            "CLOSED": 3,
            "RESOLVE": 4,
            "OFFSET_MOVED": 5,
            "FILTERS_TAKEN": 6,
            "LATE_PULL": 7,
            "FRAME": 10,
            "CLOSE": 11,
            "BINDING": 12,
            "INJECT": 13,
            "TOPIC_FILTERS": 14,
            "ACL_TABLE": 15,
            "ACL_GRANT": 16,
            "ASKER": 17,
        },
    ),
    Constants(
        "AclTrust",
        "why an account needs no signature: its address is enough for everything, or its certificate to know who it is",
        {"ADDRESS": 1, "CERTIFICATE": 2},
    ),
    Constants(
        "AclPerm",
        "what an account may do with a topic or group; DENY beats the others",
        {"DENY": 1, "PUB": 4, "SUB": 8},
    ),
    Constants(
        "GetStatus",
        "result of reading a queue; the name is the remark of the pull's reply; from 9 on mqcore's own",
        {
            "FOUND": 0,
            "NO_MATCHED_MESSAGE": 1,
            "MESSAGE_WAS_REMOVING": 2,
            "OFFSET_FOUND_NULL": 3,
            "OFFSET_OVERFLOW_BADLY": 4,
            "OFFSET_OVERFLOW_ONE": 5,
            "OFFSET_TOO_SMALL": 6,
            "NO_MATCHED_LOGIC_QUEUE": 7,
            "NO_MESSAGE_IN_QUEUE": 8,
            "CONSUME_QUEUE_NOT_READABLE": 9,
            "COMMIT_LOG_NOT_READABLE": 10,
            "WAITED_TOO_LONG": 11,
            "QUOTA_EXCEEDED": 12,
        },
    ),
    Constants(
        "PutStatus",
        "result of an append",
        {
            "PUT_OK": 0,
            "FLUSH_DISK_TIMEOUT": 1,
            "FLUSH_SLAVE_TIMEOUT": 2,
            "SLAVE_NOT_AVAILABLE": 3,
            "SERVICE_NOT_AVAILABLE": 4,
            "CREATE_MAPEDFILE_FAILED": 5,
            "MESSAGE_ILLEGAL": 6,
            "PROPERTIES_SIZE_EXCEEDED": 7,
            "OS_PAGECACHE_BUSY": 8,
            "UNKNOWN_ERROR": 9,
            "IN_SYNC_REPLICAS_NOT_ENOUGH": 10,
        },
    ),
    Constants("TimerMagic", "bits of timer_unit.magic", {"DEFAULT": 1, "ROLL": 2, "DELETE": 4}),
    Constants(
        "FilterOp",
        "steps of a compiled filter, which work on a stack; TEXT behind IN and SEARCH is part of them. LEAVE goes on "
        "at step *value* and lets the top value stand; SEARCH has 0 anywhere, 1 at the start, 2 at the end",
        {
            "PROPERTY": 0,
            "INTEGER": 1,
            "LONG": 2,
            "DOUBLE": 3,
            "TEXT": 4,
            "TRUTH": 5,
            "NULL": 6,
            "NEGATE": 7,
            "CONDITION": 8,
            "NOT": 9,
            "EQUAL": 10,
            "GREATER": 11,
            "GREATER_OR_EQUAL": 12,
            "LESS": 13,
            "LESS_OR_EQUAL": 14,
            "AND": 15,
            "OR": 16,
            "LEAVE_IF_FALSE": 17,
            "LEAVE_IF_TRUE": 18,
            "LEAVE_IF_NULL": 19,
            "IN": 20,
            "SEARCH": 21,
        },
    ),
    Constants(
        "RingKind",
        "kind of a ring entry; PULLS_ENDED has the i32 tickets of pulls that nobody waits for; none: of all before it",
        {"PULL_REQUEST": 1, "PULL_REPLY": 2, "ARRIVAL": 3, "RESCAN": 4, "PULLS_ENDED": 5},
    ),
)


def constants(name: str) -> dict[str, int]:
    """The values of the set *name*. Raises KeyError for an unknown name."""
    return {entry.name: entry.values for entry in CONSTANTS}[name]


# With one of these, the store takes no message.
REFUSING_FLAGS = sum(
    constants("StoreFlag")[name]
    for name in (
        "NOT_WRITABLE", "CONSUME_QUEUE_ERROR", "INDEX_ERROR", "DISK_FULL", "SYNC_FAILED", "SHUTTING_DOWN",
        "WORKER_MISSING", "SLAVE", "NOT_ENOUGH_REPLICAS",
    )
)  # fmt: skip
