"""What operators ask of name servers and brokers, as typed calls.

``Admin`` here is the asyncio face, as in ``mqcore.aio``; ``mqcore.client.Admin`` (plain/admin.py) has the same calls.
"""

from mqcore.client.admin.api import Admin
from mqcore.client.admin.base import BrokerPlace, Outcomes
from mqcore.client.admin.dead_letters import ResendReport
from mqcore.client.admin.messages import FoundMessages
from mqcore.client.admin.offsets import GroupLag, QueueLag, QueueReset, ResetReport, ResetTo

__all__ = [
    "Admin",
    "BrokerPlace",
    "FoundMessages",
    "GroupLag",
    "Outcomes",
    "QueueLag",
    "QueueReset",
    "ResendReport",
    "ResetReport",
    "ResetTo",
]
