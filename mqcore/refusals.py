"""Why a broker or a name server says no, by what it says, and what to do: the rows of ``docs/errors.md``.

``python -m mqcore.refusals`` writes the page; with ``--check`` nothing is written, and the exit status is 1 when the
page is not what would be written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Final

from mqcore.codes import ResponseCode

PAGE_NAME: Final = "docs/errors.md"
LINE_SIZE: Final = 120
PAGE: Final = Path(__file__).resolve().parents[1] / PAGE_NAME


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason to be refused. *says* is searched in the remark, in which names and numbers differ."""

    anchor: str
    code: ResponseCode
    says: str
    cause: str
    mend: str

    @property
    def title(self) -> str:
        """The heading on the page, of which *anchor* is made."""
        return self.anchor.replace("-", " ").capitalize()

    @property
    def place(self) -> str:
        """Where it is written up."""
        return f"{PAGE_NAME}#{self.anchor}"


Code = ResponseCode

REFUSALS: Final = (
    # Topics and groups.
    Reason(
        "topic-does-not-exist",
        Code.TOPIC_NOT_EXIST,
        r"not exist|No topic in this broker|No topic route info",
        "This broker has no such topic, or no broker that the name server knows of has it. Often a name that is "
        "spelt otherwise, another namespace, or the name server of another cluster.",
        "`mqcore topic list` shows what is there, `mqcore topic create NAME` makes it. With "
        "`autoCreateTopicEnable=true` the first message makes it; a pull never does.",
    ),
    Reason(
        "queue-does-not-exist",
        Code.SYSTEM_ERROR,
        r"queueId\[-?\d+\] is illegal|is not exist!",
        "The number of the queue is not below the topic's queue count on this broker; counts differ between "
        "brokers, and may have been made smaller.",
        "Take the queues from the topic's route anew, or make the topic have more: `mqcore topic update`.",
    ),
    Reason(
        "topic-is-reserved",
        Code.SYSTEM_ERROR,
        r"conflict with system topic",
        "The name is one that brokers use for themselves.",
        "Take another name.",
    ),
    Reason(
        "name-is-illegal",
        Code.SYSTEM_ERROR,
        r"[Tt]he specified topic|illegal characters|is longer than",
        "Names have letters, digits, `%`, `|`, `-` and `_`, a topic's at most 127 and a group's at most 255 of them.",
        "Take another name.",
    ),
    Reason(
        "group-does-not-exist",
        Code.SUBSCRIPTION_GROUP_NOT_EXIST,
        r"subscription group",
        "The consumer group was never made, and `autoCreateSubscriptionGroup=false`.",
        "`mqcore group create NAME`, or switch the automatic creation on.",
    ),
    Reason(
        "group-is-not-known-yet",
        Code.SUBSCRIPTION_NOT_EXIST,
        r"consumer's group info not exist",
        "Since the broker was started no member of the group has sent it a heart-beat that has come. Consumers send"
        " one at their start and every 30 s, so that it passes by itself.",
        "If it does not pass: is the consumer running, and is this broker on its route?",
    ),
    Reason(
        "subscription-is-not-known",
        Code.SUBSCRIPTION_NOT_EXIST,
        r"consumer's subscription not exist",
        "The group's last heart-beat did not name this topic. Either the consumer has only just subscribed, or "
        "members of one group subscribe to different topics, and take each other's away with every heart-beat.",
        "Let all members of a group subscribe alike; `mqcore group subscription NAME` says which do not.",
    ),
    Reason(
        "subscription-has-changed",
        Code.SUBSCRIPTION_NOT_LATEST,
        r"not latest",
        "The client has a newer subscription than its last heart-beat told the broker. It passes with the next one.",
        "If it stays, members of the group subscribe differently: `mqcore group subscription NAME`.",
    ),
    Reason(
        "filter-is-not-known-yet",
        Code.FILTER_DATA_NOT_EXIST,
        r"filter data",
        "The broker has not been told of the SQL92 expression that this group filters the topic by, or could not "
        "read it.",
        "It passes with the next heart-beat; if not, look for the refused expression in the broker's log.",
    ),
    Reason(
        "filter-has-changed",
        Code.FILTER_DATA_NOT_LATEST,
        r"filter data not latest",
        "The expression was changed, and the broker has an older one. It passes with the next heart-beat.",
        "If it stays, members of the group filter differently.",
    ),
    Reason(
        "filter-cannot-be-read",
        Code.SUBSCRIPTION_PARSE_FAILED,
        r"",
        "The expression of the subscription is no SQL92 as RocketMQ knows it, or no list of tags.",
        "The broker's log has the place. Numbers, strings in single quotes, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, "
        "`IS NULL` and comparisons are known; functions and arithmetic are not.",
    ),
    Reason(
        "filter-type-is-not-supported",
        Code.SYSTEM_ERROR,
        r"does not support consumer to filter message by",
        "Filters by SQL92 are switched off, or the type of the filter is neither `TAG` nor `SQL92`.",
        "`enablePropertyFilter=true` on the broker.",
    ),
    # Rights.
    Reason(
        "access-is-denied",
        Code.NO_PERMISSION,
        r"[Aa]ccess|[Aa]ccount|signature|[Ss]ecret|[Nn]eed .*[Aa]dmin",
        "Access control is on, and the key is unknown, the signature does not fit, the address is not on the "
        "account's white list, or the account may not do this to that topic or group.",
        "The remark says which of them. The account's rights are in `plain_acl.yml`: see [security](security.md).",
    ),
    Reason(
        "sending-is-forbidden",
        Code.NO_PERMISSION,
        r"sending (transaction )?message is forbidden|Sending message to topic",
        "The broker or the topic is not to be written (`brokerPermission`, the topic's `perm`), the topic is one of"
        " the broker's own, or the broker takes no transactions (`rejectTransactionMessage`).",
        "`mqcore topic route NAME` has the topic's permission, `mqcore broker config NAME` the broker's.",
    ),
    Reason(
        "pulling-is-forbidden",
        Code.NO_PERMISSION,
        r"pulling message is forbidden",
        "The broker or the topic is not to be read (`brokerPermission`, the topic's `perm`).",
        "`mqcore topic route NAME` has the topic's permission, `mqcore broker config NAME` the broker's.",
    ),
    Reason(
        "group-may-not-consume",
        Code.NO_PERMISSION,
        r"subscription group no permission|by broadcast way",
        "Consuming is switched off for the group: by an administrator, or as the group reads too far behind "
        "(`disableConsumeIfConsumerReadSlowly`), or it may not consume in broadcast mode.",
        "`mqcore group show NAME`, `mqcore group update NAME`.",
    ),
    Reason(
        "setting-cannot-be-changed",
        Code.NO_PERMISSION,
        r"black list|can not be updated|cannot be changed",
        "Paths, addresses, ports and names cannot be changed over the wire, whoever asks: what an administrator may"
        " change must not lead out of the store.",
        "Change the property file, and start the broker anew.",
    ),
    # Messages.
    Reason(
        "message-is-illegal",
        Code.MESSAGE_ILLEGAL,
        r"message is illegal|topic length too long|batch|body",
        "The body is longer than `maxMessageSize`, the properties are longer than 32,767 bytes, or a batch does not"
        " hold together.",
        "Send less, or raise `maxMessageSize` on the broker and `max_message_size` of the producer.",
    ),
    Reason(
        "delay-is-too-long",
        Code.MESSAGE_ILLEGAL,
        r"timer message illegal",
        "The message is to be delivered later than `timerMaxDelaySec` from now, or a recall comes too late.",
        "A shorter delay, or a higher `timerMaxDelaySec`.",
    ),
    Reason(
        "timers-are-switched-off",
        Code.SYSTEM_ERROR,
        r"timer message is not enabled",
        "The message asks for a delivery time, and `timerWheelEnable=false`.",
        "Switch it on, or take a delay level.",
    ),
    Reason(
        "timers-are-crowded",
        Code.SYSTEM_ERROR,
        r"timer message is under flow control",
        "More messages are due in that second than `timerCongestNumEachSlot`.",
        "Spread the delivery times, or raise the setting.",
    ),
    # Not now.
    Reason(
        "broker-is-busy",
        Code.SYSTEM_BUSY,
        r"broker busy|system busy",
        "There is more to do than the broker gets done: the words behind *cause* say of what. A refused send was "
        "not stored. See [protection](protection.md) for every limit.",
        "Send again after a moment, to another broker if there is one. If it stays: `mqcore doctor`, a faster disk,"
        " more processors, or the quota that is named.",
    ),
    Reason(
        "put-lock-is-kept",
        Code.SYSTEM_ERROR,
        r"\[PC_SYNCHRONIZED\]",
        "The message waited for `osPageCacheBusyTimeOutMills` for its turn to be appended: somebody's append waits "
        "for memory or for the disk.",
        "Send again after a moment. If it stays: is the disk slow, is memory short (`mqcore doctor`)?",
    ),
    Reason(
        "store-takes-no-message",
        Code.SERVICE_NOT_AVAILABLE,
        r"service not available now",
        "The store takes no message: the words behind *cause* say why. The disk is fuller than "
        "`diskMaxUsedSpaceRatio`, a sync has failed, this broker is a slave, it is stopping, or a worker does not "
        "come up.",
        "Make room, or lower `fileReservedTime`; after a failed sync look at the disk and start the broker anew.",
    ),
    Reason(
        "broker-is-no-master",
        Code.SERVICE_NOT_AVAILABLE,
        r"no longer the master|NOT_MASTER|is not the master",
        "The broker was the master of its group until just now. What was sent may be stored or not.",
        "Ask for the route anew, and send to the new master; ours does so by itself.",
    ),
    Reason(
        "slave-cannot-do-this",
        Code.SLAVE_NOT_AVAILABLE,
        r"",
        "No slave is near enough for a SYNC_MASTER to wait for, or the request was made to a slave. A message that "
        "was sent is stored on the master.",
        "`mqcore ha status`; start the slave, or let it catch up.",
    ),
    Reason(
        "slave-was-late",
        Code.FLUSH_SLAVE_TIMEOUT,
        r"",
        "The message is stored on the master; no slave had it within `slaveTimeout`.",
        "Do not send it again if it must not come twice. `mqcore ha status` shows how far slaves are behind.",
    ),
    Reason(
        "disk-was-late",
        Code.FLUSH_DISK_TIMEOUT,
        r"",
        "The message is in the log; it was not on the disk within `syncFlushTimeout`.",
        "Do not send it again if it must not come twice. Is the disk slow?",
    ),
    Reason(
        "too-few-replicas",
        Code.SYSTEM_ERROR,
        r"in-sync replicas not enough",
        "Fewer members of the group have all of the log than `minInSyncReplicas`, or the master reaches neither "
        "etcd nor all of them.",
        "`mqcore ha status`; start what is missing. Nothing was stored.",
    ),
    # Requests.
    Reason(
        "request-is-not-supported",
        Code.REQUEST_CODE_NOT_SUPPORTED,
        r"",
        "The peer does not know this request: a request of RocketMQ 5 that a 4.9 broker does not serve, or a broker"
        " was asked what a name server knows, or the other way round.",
        "Is the address that of a name server (9876) where one is wanted, and of a broker (10911) else?",
    ),
    Reason(
        "nothing-was-found",
        Code.QUERY_NOT_FOUND,
        r"",
        "No message has that key in that time, or the group has never committed an offset of that queue.",
        "Is the time right, and is the message still kept (`fileReservedTime`)?",
    ),
    Reason(
        "message-is-gone",
        Code.SYSTEM_ERROR,
        r"can not find message by the offset|look message by offset failed|prepared",
        "At that place in the log there is no message: it was deleted by age, or the id is that of another broker.",
        "Messages are kept for `fileReservedTime` hours, or less where the disk is full.",
    ),
    Reason(
        "transaction-does-not-fit",
        Code.SYSTEM_ERROR,
        r"[Tt]ransaction|half message|group.*(differs|mismatch)",
        "The end of a transaction names a half message that is not there any more, or is of another producer group.",
        "Nothing is lost: the broker asks the producers of the group what became of it.",
    ),
    Reason(
        "consumer-is-not-online",
        Code.CONSUMER_NOT_ONLINE,
        r"",
        "Offsets of a running group are changed through its members, and none is connected.",
        "Start one; `mqcore offset reset` also moves a group that does not run.",
    ),
    Reason(
        "consumer-did-not-answer",
        Code.CONSUME_MSG_TIMEOUT,
        r"",
        "The member that was to consume the message, or to tell of itself, did not do so in time.",
        "Its handler may still be at work; look at its log.",
    ),
    Reason(
        "recall-failed",
        Code.ILLEGAL_OPERATION,
        r"",
        "A recall whose handle is none, is of another topic, or comes too late.",
        "The handle is in the answer to the send; a message that is due cannot be taken back any more.",
    ),
    Reason(
        "parameter-is-invalid",
        Code.INVALID_PARAMETER,
        r"",
        "A field of the request is not what it may be.",
        "The remark names field, value and what was wanted.",
    ),
    Reason(
        "accounts-were-not-changed",
        Code.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
        r"",
        "The account could not be written to `plain_acl.yml`: a field is not as it must be, or the file cannot be "
        "written.",
        "The remark says which.",
    ),
    Reason(
        "account-was-not-deleted",
        Code.DELETE_ACL_CONFIG_FAILED,
        r"",
        "There is no such account, or the file cannot be written.",
        "`plain_acl.yml` has those that there are.",
    ),
    Reason(
        "white-list-was-not-changed",
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
        r"",
        "An address pattern is none, or the file cannot be written.",
        "The remark says which.",
    ),
    Reason(
        "request-failed",
        Code.SYSTEM_ERROR,
        r"",
        "Anything else. The remark says what was found and what was expected there, and the broker's log has more.",
        "If it is not the request's fault: a report with the remark and the log is welcome.",
    ),
)


def refusal_of(code: int, remark: str) -> Reason | None:
    """Return the row for an answer; None for codes that refuse nothing, or that nobody here gives."""
    return next((row for row in REFUSALS if row.code == code and re.search(row.says, remark)), None)


def help_on(anchor: str) -> str:
    """Return the line that ends a remark, in place of RocketMQ's link, which leads nowhere any more."""
    (row,) = (row for row in REFUSALS if row.anchor == anchor)
    return f"\nSee {row.place} for further details."


HEADER = """\
# Errors of brokers and name servers

Written by `python -m mqcore.refusals`; do not edit it by hand.

Each heading is a reason to be refused, with RocketMQ's response code and a regular expression that is found in the
remark, as names and numbers differ. What the client makes of them is in [the client's errors](client/errors.md).
"""


def page() -> str:
    """The whole text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEADER.rstrip("\n")
    for row in REFUSALS:
        yield from ("", f"## {row.title}", "", f"{row.code.name} ({int(row.code)})" + (row.says and f", `{row.says}`"))
        for paragraph in (f"**Cause.** {row.cause}", f"**Mend.** {row.mend}"):
            yield from ("", fill(paragraph, LINE_SIZE, break_long_words=False, break_on_hyphens=False))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 if ``--check`` found the page missing or stale."""
    from mqcore.written_page import write_or_check  # brokers import this module, and need no command line for it

    return write_or_check(PAGE, page, "python -m mqcore.refusals", argv)


if __name__ == "__main__":
    sys.exit(main())
