"""What the Spark source and sink raise beside the errors of mqcore.errors.

All state is in ``args``: Spark sends the errors of executors to the driver as text, tests send them as pickles.
"""

from __future__ import annotations

from mqcore.errors import MQError, NoRouteError


class TopicRouteError(NoRouteError):
    """No name server knows a broker for the topic that a query reads or writes."""

    hint = (
        "check that it exists, that the option nameServer names its cluster, and that the broker's address can be "
        "reached from here"
    )


class NoQueueError(MQError):
    """A row names a queue that its topic does not have, or not now."""

    def __init__(self, topic: str, broker_name: str, queue_id: int) -> None:
        super().__init__(topic, broker_name, queue_id)

    def __str__(self) -> str:
        _, broker_name, queue_id = self.args
        return (
            f"the topic has no queue {queue_id} on a broker {broker_name!r} to be written to; rows that come from "
            "another cluster want to be written without the columns brokerName and queueId"
        )


class DataLossError(MQError):
    """Messages that a query was to read are gone: deleted by retention, or their topic or queue is.

    ``failOnDataLoss=false`` turns it into a warning, and reading goes on with what is there.
    """

    HINT = "the option failOnDataLoss=false goes on with what is there"

    def __init__(self, what: str) -> None:
        super().__init__(what)

    def __str__(self) -> str:
        return f"{self.args[0]}; {self.HINT}"


class SinkError(MQError):
    """A row could not be sent. *row* counts from 0 within the task's input; *code* is the broker's, -1 without one."""

    def __init__(self, partition: int, row: int, topic: str, code: int, reason: str) -> None:
        super().__init__(partition, row, topic, code, reason)

    @property
    def row(self) -> int:
        return int(self.args[1])

    @property
    def code(self) -> int:
        return int(self.args[3])

    def __str__(self) -> str:
        partition, row, topic, code, reason = self.args
        return f"sending row {row} of partition {partition} to topic {topic!r} failed, code {code}: {reason}"
