"""What halves and ends of transactions look like, for all who write or read them.

A half message waits in queue 0 of the half topic. An op message says which of them are done with: its body has their
queue offsets in decimal, with commas between (RocketMQ 4.9 and this broker write one, 5.x several).
Source: RocketMQ broker/transaction/queue/TransactionalMessageBridge.java, TransactionalMessageUtil.java.
"""

from __future__ import annotations

from typing import Final

from mqcore.protocol.properties import PROPERTY_TAGS, PROPERTY_WAIT_STORE_MSG_OK, encode_properties

HALF_QUEUE_ID: Final = 0
"""The only queue of the half topic, and of the op topic."""

OP_TAG: Final = "d"
OP_SEPARATOR: Final = ","
MOVED_MARK: Final = "0"
"""In front of a number in an op message: that half lies elsewhere now, and its transaction may still be open.

Only this broker writes it and tells it apart; to RocketMQ's 017 is 17, and done with.
"""

OP_PROPERTIES: Final = {PROPERTY_WAIT_STORE_MSG_OK: "true", PROPERTY_TAGS: OP_TAG}
OP_PROPERTIES_TEXT: Final = encode_properties(OP_PROPERTIES)

NOT_SET: Final = "not set any response code"
"""What a reply carries whose handler sets the code only; some successful replies do."""

HALF_NOT_FOUND: Final = "Find prepared transaction message failed"
GROUP_WRONG: Final = "The producer group wrong"
TABLE_OFFSET_WRONG: Final = "The transaction state table offset wrong"
