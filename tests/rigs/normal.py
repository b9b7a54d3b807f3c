"""What mqadmin prints, without what two brokers in the same state may print differently.

Blanked are times, addresses, process ids, rates, latencies and figures of memory and disk; ids keep the part that
says where in the log the message lies. Blanks between columns collapse, because a blanked column has lost its
width.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# An offset message id is, in hexadecimal, the store's address (4 bytes), its port (4 bytes) and the physical offset.
_OFFSET_MESSAGE_ID = re.compile(r"\b7F000001[0-9A-F]{8}([0-9A-F]{16})\b")
_SUBSTITUTES: list[tuple[re.Pattern[str], str]] = [
    (_OFFSET_MESSAGE_ID, r"<store>\1"),
    (re.compile(r"\b[0-9A-F]{32,}\b"), "<unique id>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}@\d+(?:[#@]\w+)?"), "<client>"),
    (re.compile(r"/?\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?"), "<time>"),
    (re.compile(r"\b1\d{12}\b"), "<ms>"),
    (re.compile(r"[ \t]+"), " "),
]
_JAVA_PLACE = re.compile(r"at [\w.$]+\(.*\)$|\.\.\. \d+ more$")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:E-?\d+)?")

# Entries of brokerStatus whose text is a rate or a histogram and grows with the broker's age: not comparable.
_UNCOMPARABLE_STATUS = re.compile(r"^(get\w*Tps|putTps|putMessageDistributeTime)$")
# Entries whose numbers are times, latencies, memory, disk, a moment's queue, or totals of the last midnight, which may
# lie between the looks at two brokers: their form can be compared.
_MEASURED_STATUS = re.compile(
    r"^(bootTimestamp|runtime|commitLogDirCapacity|commitLogDiskRatio.*|consumeQueueDiskRatio|\w*EntireTimeMax"
    r"|pageCacheLockTimeMills|\w*HeadWaitTimeMills|\w*QueueSize|putLatency\d+|remainHowManyDataToFlush"
    r"|msg(?:Put|Get)Total\w+Morning)$"
)
_DATA_SIZE = re.compile(r"<n> [KMG]i?B|<n> B")


def _plain(text: str) -> list[str]:
    """The lines with everything blanked that is the same kind of thing in any output; empty lines are dropped.

    So are the places in Java's code that an exception has come by.
    """
    for pattern, substitute in _SUBSTITUTES:
        text = pattern.sub(substitute, text)
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not _JAVA_PLACE.match(line)]


def _general(lines: list[str]) -> list[str]:
    return [re.sub(r"\b\d+\.\d+\b", "<n>", line) for line in lines]


TIMER_STATUS = frozenset(
    ("timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps")
)
"""What brokers of release 5 say of their timers, and ours too; 4.9 has none."""


def _broker_status(lines: list[str]) -> list[str]:
    blanked = []
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":"))
        if name in TIMER_STATUS:
            continue
        if colon and _UNCOMPARABLE_STATUS.match(name):
            value = "<rates>"
        elif colon and _MEASURED_STATUS.match(name):
            value = _DATA_SIZE.sub("<size>", _NUMBER.sub("<n>", value.replace("<ms>", "0")))
        if name.startswith("commitLogDiskRatio_"):
            name = "commitLogDiskRatio_<path>"
        blanked.append(f"{name}{colon}{value}")
    return blanked


def _cut_columns(kept: int) -> Callable[[list[str]], list[str]]:
    """Keep the first columns of the rows of a table, all of them being words without blanks, and the heading."""

    def cut(lines: list[str]) -> list[str]:
        return [line if line.startswith("#") else " ".join(line.split()[:kept]) for line in lines]

    return cut


def _consumer_progress(lines: list[str]) -> list[str]:
    """Of the list of all groups, blank the rate: a whole number in the last column but one."""
    lines = _general(lines)
    if lines and lines[0].startswith("#Group"):
        return [lines[0], *sorted(" ".join([*row[:-2], "<n>", row[-1]]) for row in map(str.split, lines[1:]))]
    return lines


_OWN_SETTING = re.compile(
    r"^(storePath\w+|rocketmqHome|brokerConfigPath|kvConfigPath|configStorePath|listenPort|haListenPort|namesrvAddr|brokerIP\d"
    r"|\w*ThreadPoolNums|\w*Threads) = .*"
)


def _broker_config(lines: list[str]) -> list[str]:
    """Paths, ports and what depends on the number of processors are the broker's own; the rest must agree."""
    return sorted(_OWN_SETTING.sub(r"\1 = <own>", line) for line in lines)


def _without(pattern: str, substitute: str) -> Callable[[list[str]], list[str]]:
    """Blank what *pattern* finds in each line."""

    def blank(lines: list[str]) -> list[str]:
        return [re.sub(pattern, substitute, line) for line in lines]

    return blank


def _rows_in_order(lines: list[str]) -> list[str]:
    """The heading, and the rows in an order of their own: of Java's hashes two brokers need not have the same."""
    return [*lines[:1], *sorted(_general(lines[1:]))]


def _stats_all(lines: list[str]) -> list[str]:
    """The topic, the group if there is one, and how much waits; rates and totals depend on when they were made up."""
    return [*lines[:1], *sorted(" ".join(_stats_columns(line.split())) for line in lines[1:])]


def _stats_columns(words: list[str]) -> list[str]:
    return words[:2] if words[-1] == "NO_CONSUMER" else words[:3]


def _topic_list(lines: list[str]) -> list[str]:
    """In any order, without the topics of transactions: the first check creates them, a minute after the start."""
    return sorted(line for line in lines if not line.startswith("RMQ_SYS_TRANS_"))


_BY_COMMAND: dict[str, Callable[[list[str]], list[str]]] = {
    "brokerStatus": _broker_status,
    "clusterList": _cut_columns(5),
    # How many rows it comes to is a matter of time.
    "clusterRT": lambda lines: lines[:1],
    "consumerProgress": _consumer_progress,
    "getBrokerConfig": _broker_config,
    "getNamesrvConfig": _broker_config,
    "brokerConsumeStats": _rows_in_order,
    "producer": _rows_in_order,
    "checkMsgSendRT": _without(r"(true|false) \d+$|(Avg RT:) .*", r"\1\2 <n>"),
    "consumerStatus": _without(
        r"(@)[0-9a-f]+\b|(Lambda)\S+|(Timestamp=|consumeTimestamp : )\d+|(?: \d+\.\d\d){5} \d+$", r"\1\2\3<own>"
    ),
    "haStatus": _without(r"(Offset:?) \d+", r"\1 <n>"),
    "queryMsgById": _without(r"spentTimeMills=\d+", "spentTimeMills=<n>"),
    "queryMsgByUniqueKey": _without(r"spentTimeMills=\d+", "spentTimeMills=<n>"),
    "sendMsgStatus": _without(r"rt=\d+ms|<store>[0-9A-F]+", "<n>"),
    "statsAll": _stats_all,
    "topicList": _topic_list,
}


def normalised(command: str, text: str) -> list[str]:
    """The lines that *command* printed, so that equal lists mean equal states."""
    return _BY_COMMAND.get(command, _general)(_plain(text))
