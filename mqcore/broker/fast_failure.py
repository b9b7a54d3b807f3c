"""What has waited too long in front of the broker process is refused instead of being served late.

Requests that send workers do not answer cross a socket to here. How long each has been under way is written in front of
it. Source: RocketMQ broker/latency/BrokerFastFailure.java.
"""

from __future__ import annotations

from typing import Final

from mqcore.broker.processors.table import row_for
from mqcore.config import BrokerSettings

BEHIND: Final = "CPU, the broker process has more to do than one processor can"


def limit_ms(broker: BrokerSettings, pool: str) -> int:
    """Return how long a request of *pool* may wait; 0 for as long as it takes."""
    if not broker.broker_fast_failure_enable:
        return 0
    return {
        "send": broker.wait_time_in_send_queue_ms,
        "heartbeat": broker.wait_time_in_heartbeat_queue_ms,
        "end_transaction": broker.wait_time_in_transaction_queue_ms,
    }.get(pool, 0)


def refusal(broker: BrokerSettings, code: int, is_vip: bool, waited_ms: int, queue_size: int) -> str | None:
    """Return the remark for a request that has waited too long, with *queue_size* others under way; else None."""
    row = row_for(code, is_vip)
    limit = 0 if row is None else limit_ms(broker, row.pool)
    if limit == 0 or waited_ms < limit:
        return None
    return (
        f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
        f"size of queue: {queue_size}, cause: {BEHIND}"
    )
