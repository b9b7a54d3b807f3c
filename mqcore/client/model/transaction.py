"""The outcome of a local transaction, and what a broker was told of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from mqcore.client.model.receipt import SendReceipt
from mqcore.codes import SysFlag


class TransactionState(IntEnum):
    """The outcome of a local transaction. The values are those on the wire."""

    UNKNOWN = 0
    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK

    @property
    def java_name(self) -> str:
        """The name of Java's LocalTransactionState, spelt as there."""
        return _JAVA_NAMES[self]


_JAVA_NAMES = {
    TransactionState.UNKNOWN: "UNKNOW",
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
}

Outcome = TransactionState | None
"""None counts as UNKNOWN."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt(SendReceipt):
    """What a broker said about a half message, and which outcome it was told."""

    state: TransactionState = TransactionState.UNKNOWN
