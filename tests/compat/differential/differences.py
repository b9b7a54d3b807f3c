"""Where answers may differ, and why. A row that no request of the script meets goes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mqcore.codes import RequestCode as Code
from mqcore.codes import ResponseCode

from .scripts import Request
from .seen import CLOSED, EXCEPTION, Seen


@dataclass(frozen=True, slots=True)
class Difference:
    """Answers to *code*, of requests in whose name *named* is found, may differ in *parts*."""

    code: int
    named: str
    parts: frozenset[str]
    why: str

    def is_about(self, request: Request) -> bool:
        return self.code == request.code and re.search(self.named, request.name) is not None

    def allows(self, request: Request, parts: frozenset[str]) -> bool:
        return parts <= self.parts and self.is_about(request)


def differing(ours: Seen, apaches: Seen) -> frozenset[str]:
    """The parts in which two answers differ."""
    parts = {part for part in ("code", "remark", "fields", "body") if getattr(ours, part) != getattr(apaches, part)}
    # Where Java tells the class of its exception, we say what is wrong in words.
    if apaches.remark == EXCEPTION and ours.remark:
        parts.discard("remark")
    return frozenset(parts)


_REFUSED_BY_NAME: Final = re.compile(
    r"^(HeaderError|ProtocolError|StoreError|AclException): .*(got .*wanted|no row for)"
)
REFUSED_BY_NAME: Final = (
    "A field or body that is missing or cannot be read is refused by its name. RocketMQ's reading passes over such a "
    "field, and goes on with nothing or 0 in its place: what that comes to depends on the request."
)


def is_refused_by_name(ours: Seen, apaches: Seen) -> bool:
    """Whether ours names what is wrong where Apache's takes it for nothing, or fails over it later."""
    return apaches != CLOSED and _REFUSED_BY_NAME.search(ours.remark) is not None


def both_refuse(ours: Seen, apaches: Seen) -> bool:
    """Whether neither does what it was asked, and both say so."""
    refusals = (ResponseCode.SUCCESS, CLOSED.code)
    return ours.code not in refusals and apaches.code not in refusals and bool(ours.remark)


_NO_QUEUE: Final = "RocketMQ makes a queue, and its directory, of whatever is asked for; ours only of what is stored."

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        Code.SEND_BATCH_MESSAGE, "half a batch", frozenset({"code", "fields"}),
        "A batch that does not end where its body does is MESSAGE_ILLEGAL; RocketMQ fails over it.",
    ),
    Difference(
        Code.PULL_MESSAGE, "SQL that is none", frozenset({"code", "remark", "fields", "body"}),
        "An expression that does not parse is refused. RocketMQ takes it, of a pull that brings its own, for none, and "
        "gives every message.",
    ),
    Difference(Code.GET_MIN_OFFSET, "of nothing", frozenset({"fields"}), _NO_QUEUE),
    Difference(Code.QUERY_CONSUME_QUEUE, "of nothing", frozenset({"code", "remark"}), _NO_QUEUE),
    Difference(
        Code.GET_CONSUME_STATS, "", frozenset({"body"}),
        "`pullOffset`, a member of release 5, is there: without it mqadmin 5.3.3 shows negative numbers in flight.",
    ),
    Difference(Code.GET_BROKER_CONSUME_STATS, "", frozenset({"body"}), "As of GET_CONSUME_STATS."),
    Difference(
        Code.UPDATE_BROKER_CONFIG, "black-listed", frozenset({"code", "remark"}),
        "No path may be changed over the wire.",
    ),
    Difference(
        Code.GET_BROKER_CONFIG, "", frozenset({"body"}), "Settings of ours and of release 5 are there as well.",
    ),
    Difference(
        Code.GET_NAMESRV_CONFIG, "", frozenset({"body"}), "Settings of ours and of release 5 are there as well.",
    ),
    Difference(
        Code.GET_BROKER_RUNTIME_INFO, "", frozenset({"body"}), "Figures of timers, of release 5, are there as well.",
    ),
    Difference(
        Code.SEND_MESSAGE, "no name server serves", frozenset({"code", "remark"}),
        "What a name server does not know it refuses by code; RocketMQ's gives no answer.",
    ),
)  # fmt: skip

OF_WRONG_ONES: Final[tuple[Difference, ...]] = (
    Difference(
        Code.SEND_MESSAGE_V2, r", d ", frozenset({"code", "remark", "fields"}),
        "What a topic would be made with is not read where the topic is there.",
    ),
    Difference(
        Code.SEND_BATCH_MESSAGE, r", d ", frozenset({"code", "remark", "fields"}),
        "What a topic would be made with is not read where the topic is there.",
    ),
    Difference(
        Code.SEND_BATCH_MESSAGE, "f negative", frozenset({"code", "remark", "fields"}),
        "Flags that only a broker may set are left out of what a client sends.",
    ),
    Difference(
        Code.PULL_MESSAGE, "consumerGroup empty", frozenset({"code", "remark", "fields", "body"}),
        "A group without a name is none.",
    ),
    Difference(
        Code.PULL_MESSAGE, "maxMsgNums negative", frozenset({"code", "remark", "fields", "body"}),
        "A pull gets one message at least.",
    ),
    Difference(
        Code.CONSUMER_SEND_MSG_BACK, "group empty", frozenset({"code", "remark"}), "A group without a name is none.",
    ),
    Difference(
        Code.QUERY_CONSUME_QUEUE, "(topic empty|queueId negative)$", frozenset({"code", "remark"}), _NO_QUEUE,
    ),
    Difference(
        Code.CONSUME_MESSAGE_DIRECTLY, "without msgId", frozenset({"code", "remark", "body"}),
        "The member is asked all the same, and answers as it can.",
    ),
)  # fmt: skip
"""Where one of two takes what the other refuses, otherwise than REFUSED_BY_NAME has it."""

OF_RELEASE_5: Final[tuple[Difference, ...]] = (
    Difference(
        Code.UPDATE_AND_CREATE_TOPIC, "with a type that is none", frozenset({"remark"}),
        "The refusal names the attribute and its values in order.",
    ),
    Difference(
        Code.GET_TOPIC_CONFIG, "without a type", frozenset({"body"}),
        "A topic without attributes is shown as by 4.9, without the member.",
    ),
    Difference(
        Code.GET_SUBSCRIPTIONGROUP_CONFIG, "", frozenset({"body"}), "Members of release 5 alone are not kept.",
    ),
    Difference(
        Code.HEART_BEAT, "", frozenset({"fields"}), "Heart-beats of the second version are not there, and not offered.",
    ),
)  # fmt: skip
"""Of what tools of release 5 ask, beside a broker of that release."""

_ADMINS_ONLY: Final = (
    "Only accounts with `admin` may change accounts and white addresses (`aclChangesNeedAdmin`); in RocketMQ every "
    "account may, and may so make itself an admin."
)

OF_ACCESS_CHANGES: Final[tuple[Difference, ...]] = tuple(
    Difference(code, "^a limited account: ", frozenset({"code", "remark"}), _ADMINS_ONLY)
    for code in (Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
)
OF_ACCESS: Final[tuple[Difference, ...]] = (
    *OF_ACCESS_CHANGES,
    Difference(
        Code.UPDATE_AND_CREATE_ACL_CONFIG, "^an admin: an account with a short key", frozenset({"remark"}),
        "Secrets are in no answer.",
    ),
)  # fmt: skip
"""Of what is asked with access control on, beside DIFFERENCES."""

OF_WRONG_ACCESS: Final[tuple[Difference, ...]] = (
    # Of what goes, both refuse what is wrong.
    *(row for row in OF_ACCESS_CHANGES if row.code != Code.DELETE_ACL_CONFIG),
    Difference(
        Code.UPDATE_AND_CREATE_ACL_CONFIG, "^an admin: an account, (topic|group)Perms empty$",
        frozenset({"code", "remark"}), "An empty list is none; RocketMQ takes it for a rule without a name.",
    ),
)  # fmt: skip
"""And of what is asked wrongly then, beside OF_WRONG_ONES."""
