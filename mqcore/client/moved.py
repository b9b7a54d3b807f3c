"""Where the modules of the client lie that used to lie side by side in it: the old names are imported as before.

``mqcore.client.messages`` is ``mqcore.client.model.messages``, one module with two names. What programs should import
is in ``mqcore.client``, ``mqcore.aio`` and ``mqcore.client.errors``; the names here were never documented, are kept for
those that found them, and for pickles, and say by a DeprecationWarning what they are called now.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

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
        producer producer_core=core batching batch_body batch_split inflight blocking exchange codec fault_strategy
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
    "mqcore.transport": "credentials=signing",
    "mqcore.client.plain": """
        plain_calls=calls plain_consumer=consumer pull_consumer_plain=pull_consumer
    """,
}


def _rows() -> dict[str, str]:
    moved = [(room, *name.partition("=")) for room, names in _ROOMS.items() for name in names.split()]
    return {old: f"{room}.{new or old}" for room, old, _, new in moved}


MOVED: Final = _rows()
"""The name that a module had in ``mqcore.client``, and its whole name now."""


class MovedModules:
    """Finds and loads modules by their old names. It is asked last, when nothing of the name is in its old place.

    Its bases would be in importlib.abc, which takes as long to import as ten modules of ours.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, cast("Loader", self)) if package == PACKAGE and name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Take the usual empty module; it is given up at once."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        now = MOVED[name.rpartition(".")[2]]
        warnings.warn(f"{name} is {now} now", DeprecationWarning, stacklevel=2)
        # What stands there when this returns is what the import gives: the very same module, and not a copy.
        sys.modules[name] = import_module(now)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return what ``python -m`` runs by an old name: lines that run the module by the one that it has now."""
        now = MOVED[fullname.rpartition(".")[2]]
        # By a line of the program itself, as whoever typed the name is to see it.
        lines = f"""
import runpy, warnings
warnings.warn("{fullname} is {now} now", DeprecationWarning, stacklevel=1)
runpy.run_module("{now}", run_name=__name__, alter_sys=True)
"""
        return compile(lines, f"<{fullname}>", "exec")


def install() -> None:
    """Let the old names be found, once in a process."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
