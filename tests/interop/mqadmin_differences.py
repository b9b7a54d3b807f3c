"""Lines of mqadmin that may differ between Apache's broker and ours, and why. A row that is not met goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LineDifference:
    """Of steps whose name *step* matches: lines like *ours* may be ours alone, and like *apaches* Apache's alone."""

    step: str
    why: str
    ours: str = r"(?!)"
    apaches: str = r"(?!)"

    def is_about(self, step: str) -> bool:
        return re.fullmatch(self.step, step) is not None

    def allows(self, line: str, *, is_ours: bool) -> bool:
        return re.fullmatch(self.ours if is_ours else self.apaches, line) is not None


def alone(these: Sequence[str], those: Sequence[str]) -> list[str]:
    """The lines of *these* that *those* lack, each as often as it is lacking."""
    return list((Counter(these) - Counter(those)).elements())


def reasons(
    step: str, ours: Sequence[str], apaches: Sequence[str], rows: Iterable[LineDifference]
) -> tuple[list[str], set[LineDifference]]:
    """The lines that no row explains, and the rows that explain others. Another order is a difference, too."""
    about = [row for row in rows if row.is_about(step)]
    unexplained: list[str] = []
    met: set[LineDifference] = set()
    for mark, lines, is_ours in (("+", alone(ours, apaches), True), ("-", alone(apaches, ours), False)):
        for line in lines:
            found = [row for row in about if row.allows(line, is_ours=is_ours)]
            met.update(found)
            if not found:
                unexplained.append(f"{mark} {line}")
    if not unexplained and not met and list(ours) != list(apaches):
        unexplained.append("the same lines in another order")
    return unexplained, met


_SETTING: Final = r"[\w.]+ =.*"

DIFFERENCES: Final[tuple[LineDifference, ...]] = (
    LineDifference(
        ".*", "RocketMQ's page of help is gone; ours names a reason on a page that is there.",
        ours=r"See docs/errors\.md#[a-z-]+ for further details\..*",
        apaches=r"See http://rocketmq\.apache\.org/docs/faq/ for further details\..*",
    ),
    LineDifference(
        "(getBrokerConfig|getNamesrvConfig).*", "Settings of ours and of release 5 are there as well.", ours=_SETTING,
    ),
    LineDifference(
        "(getBrokerConfig|getNamesrvConfig).*", "A home is shown where one is set; RocketMQ starts without none.",
        apaches="rocketmqHome = <own>",
    ),
    LineDifference(
        "getBrokerConfig.*", "SQL92 and its bitmaps are on by default.",
        apaches="(enableCalcFilterBitMap|enablePropertyFilter) = false",
    ),
    LineDifference(
        "updateBrokerConfig with no number",
        "What is no value is refused by its name; RocketMQ says that it was taken.",
        ours=".*(command failed|DESC: ConfigError: fileReservedTime: got 'x', wanted an integer .*|visit the url.*)",
        apaches="update broker config success.*",
    ),
    LineDifference(
        "updateBrokerConfig of a path", "No path may be changed over the wire.",
        ours=".*(command failed|CODE: 16 DESC: Can not update config in black list. .*|visit the url.*)",
        apaches="update broker config success.*",
    ),
    LineDifference(
        "updateAclConfig|deleteAclConfig|updateGlobalWhiteAddr",
        "That access control is off is said so; RocketMQ stumbles over what is not there. With access control it "
        "passes (`tests/interop/test_mqadmin_acl.py`).",
        ours=".* DESC: access control is off: aclEnable is false", apaches='.* because "accessValidator" is null',
    ),
)  # fmt: skip

OF_RELEASE_5: Final[tuple[LineDifference, ...]] = (
    LineDifference(
        "queryMsgBy(Id|UniqueKey|Offset).*",
        "Whether a group has consumed a message is told, as by a broker of release 5: ours answers request 351.",
        ours=".*trackType=CONSUMED.*", apaches=".*trackType=UNKNOWN.*",
    ),
    LineDifference(
        "exportMetadata with a type", "How often the table has changed is counted as by a broker of 4.9.8.",
        ours=r'"counter": \d+,', apaches=r'"counter": \d+,',
    ),
    LineDifference(
        "updateTopic with a type that is none", "The refusal names the attribute and its values in order.",
        ours=".*message.type is DELAY or FIFO or .*", apaches=r".*value is not in set: \[.*",
    ),
    LineDifference(
        "statsAll|statsAll of all topics",
        "What waits for a group without members is told, as by a broker of release 5; of a broker of 4.9.8 it is 0.",
        ours=r"Orders Archive \d+", apaches="Orders Archive 0",
    ),
    LineDifference(
        "getBrokerEpoch",
        "Epochs are those of a failover group: ours names that where a broker of release 5 names its mode.",
        ours=".*CODE: 1 DESC: this broker is in no failover group", apaches=".*CODE: 1 DESC: .*controllerMode",
    ),
)  # fmt: skip
"""Of mqadmin 5.3.3, beside DIFFERENCES: from that broker of Apache's, 4.9.8 or 5.3.3, that prints more of the same."""
