"""One name, one thing: a class name that several modules give is listed here, with why it is the same thing in all."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL_CLASS = re.compile(r"^ *(?:cdef|ctypedef) (?:packed )?(?:class|struct|enum|union) (\w+)", re.MULTILINE)

# What the compiled code takes of it in the Python half, or keeps of it in C.
TWINS = """
    Batch BatchBody BatchEncoder BatchMember Birth ColumnDecoder Connection DecodeStatus DispatchStatus Dispatcher
    Exchange ExtUnit ExtWriter FutureFields HandlerLine HandlerStretch IndexGeometry IndexTally IndexWriter
    Iteration Joiner LogPlaces LogTally Maker NewestFile QueueEnds QueueWriter QuotaRule Receipts RecordFields
    Replica Room ScanLimits SendHead TimerUnit TimerWheel TlsMode UniqueIdGenerator
"""

# With and without asyncio.
FACES = "Admin BatchStream Client Consumer MessageStream Producer PullConsumer TransactionProducer"

# As Apache's clients call it: of the protocol, of the client, and in the compat modules.
APACHES = """
    ConsumeFromWhere ConsumeStatus Message MessageExt MessageModel MessageQueue PullResult ReplyMessage SendResult
    SendStatus TransactionMQProducer
"""

# Two ends of one thing: broker and client, or what a service asks for and what answers.
ENDS = "PullRequest QueueLocks RouteTable"

# Two things all the same. Each is in packages of which no module imports both.
APART = {
    "MessageBatch": "public in mqcore.client, of messages, and in mqcore.store, of columns",
    "Outcome": "of a swap in mqcore.broker.failover, of a handler in mqcore.client",
    "Pace": "of a broker's terms in mqcore.broker.failover, of a copy in mqcore.store.backup",
    "Record": "of a table in mqcore.broker, of a message in mqcore.store",
    "Text": "of a file in mqcore.broker, of a value in mqcore._fast.columns",
    "Unit": "of a number in mqcore.config, of a consume queue in mqcore.store",
}

KNOWN = {*TWINS.split(), *FACES.split(), *APACHES.split(), *ENDS.split(), *APART}


def defined() -> dict[str, set[str]]:
    """The modules that define each class, struct or enum; a kernel and its declarations are one."""
    found = defaultdict(set)
    for folder in ("mqcore", "workers"):
        for path in (ROOT / folder).rglob("*"):
            module = path.relative_to(ROOT).with_suffix("").as_posix()
            if "spark" in path.parts:
                continue
            if path.suffix == ".py":
                names = [node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.ClassDef)]
            elif path.suffix in (".pyx", ".pxd"):
                names = KERNEL_CLASS.findall(path.read_text())
            else:
                continue
            for name in names:
                if not name.startswith("_"):
                    found[name].add(module)
    return found


def test_a_name_is_given_once_or_for_the_same_thing() -> None:
    repeated = {name: sorted(modules) for name, modules in defined().items() if len(modules) > 1}
    assert len(repeated) > 30, "the modules are not found"
    assert {name: modules for name, modules in repeated.items() if name not in KNOWN} == {}, (
        "name them apart, or say above why they are the same"
    )
