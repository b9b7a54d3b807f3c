"""Where the modules of the client lie that used to lie side by side in it: the old names are imported as before.

``mqcore.client.messages`` is ``mqcore.client.model.messages``, one module with two names. What programs should import
is in ``mqcore.client``, ``mqcore.aio`` and ``mqcore.client.errors``; the names here were never documented, are kept for
those that found them, and for pickles, and say by a DeprecationWarning what they are called now.
"""

from __future__ import annotations

from typing import Final

from mqcore import moved_modules

PACKAGE: Final = "mqcore.client"

# The room, and what has come into it: the old name, and the new one where that is another.
_ROOMS: Final = {
    "mqcore.client.model": """
        messages validators subscription namespace rebalance selectors backoff codecs counters process_queue
    """,
    "mqcore.client.settings": """
        checked configuration options pull_consumer_settings=pull_consumer settings_page=page
    """,
    "mqcore.client.session": """
        instance=session routes name_servers broker_api identity forks tasks master_search waiting_sends
        failures tls loop_thread postbox handler_threads stop_signals inside
    """,
    "mqcore.client.telemetry": """
        statistics hooks=producer_hooks consume_hooks=consumer_hooks trace trace_hooks
    """,
    "mqcore.client.produce": """
        producer producer_core=core batching batch_body batch_split inflight blocking codec fault_strategy
        request_reply transactions
    """,
    "mqcore.client.consume": """
        membership assignment queue_locks offsets consume_retry=retry consume_workers=workers consume_trace=trace
        consuming=handling handlers=declared pulling=pull_loop remote_control
    """,
    "mqcore.client.consume.push": """
        consumer consume_concurrently=concurrently consume_orderly=orderly consume_in_threads=in_threads
        consume_orderly_in_threads=orderly_in_threads streams batches
    """,
    "mqcore.client.consume.polled": """
        pull_consumer=consumer pull_consumer_control=control pull_consumer_offsets=offsets pull_consumer_watch=watch
        lite_pull=queues lite_pull_assignment=assignment polled_queue=queue polled_batch=batch pull_api
    """,
    "mqcore.transport": "credentials=signing exchange",
    "mqcore.client.plain": """
        plain_calls=calls plain_consumer=consumer pull_consumer_plain=pull_consumer
    """,
}


def _rows() -> dict[str, str]:
    moved = [(room, *name.partition("=")) for room, names in _ROOMS.items() for name in names.split()]
    return {old: f"{room}.{new or old}" for room, old, _, new in moved}


MOVED: Final = _rows()
"""The name that a module had in ``mqcore.client``, and its whole name now."""


def install() -> None:
    """Let the old names be found, once in a process."""
    moved_modules.install({f"{PACKAGE}.{old}": now for old, now in MOVED.items()})
