"""What the tests of the broker source and sink share: topics with known messages, and reading without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from mqcore.spark.batch import BatchReader
from mqcore.spark.options import Use
from mqcore.spark.schema import schema_of
from mqcore.spark.settings import SourceSettings, sink_settings, source_settings
from mqcore.spark.sink_keys import RandomKeys, TaskKeys
from mqcore.spark.sink_rows import TaskRows
from tests.integration.client_helpers import make_topic
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

__all__ = ["bodies_of", "fill", "make_topic", "read", "reader", "running_broker", "settings_of"]

# Patience of a busy machine, on which a broker may take a minute to start, and no needless pauses.
FAST = {"retryIntervalMs": "100", "numRetries": "1200"}


def running_broker(directory: Path, **properties: str) -> Iterator[MqcoreBroker]:
    """The body of a fixture: a broker of its own."""
    with MqcoreBroker(directory / "store", properties) as broker:
        yield broker


def settings_of(broker: MqcoreBroker, use: Use = Use.BATCH, **options: Any) -> SourceSettings:
    """The settings of a read from *broker*."""
    given = {"nameServer": broker.name_server, **FAST, **{name: str(value) for name, value in options.items()}}
    return source_settings(given, use)


def fill(
    broker: MqcoreBroker,
    topic: str,
    bodies: Sequence[bytes],
    keys: TaskKeys | None = None,
    /,
    *,
    portion: int = 0,
    **more: Any,
) -> None:
    """Send *bodies* through the sink's own code, *portion* rows at a time if that is given; *more* are columns (lists)
    and options (strings)."""
    columns = {"body": pa.array(bodies, pa.binary())}
    columns |= {name: values for name, values in more.items() if not isinstance(values, str)}
    options = {name: values for name, values in more.items() if isinstance(values, str)}
    if "topic" not in columns:
        options["topic"] = topic
    settings = sink_settings({"nameServer": broker.name_server, **FAST, **options})
    with TaskRows(settings, 0, keys or RandomKeys()) as rows:
        whole = pa.RecordBatch.from_pydict(columns)
        for first in range(0, len(bodies), portion or len(bodies)):
            rows.send(whole.slice(first, portion or None))
        rows.finish()
    await_readable(broker, topic)


def await_readable(broker: MqcoreBroker, topic: str) -> None:
    """Wait until what is acknowledged can be read: it gets into its queue a moment later."""
    wait_until(lambda: wire.is_dispatched(broker.broker_address), 30, f"what is stored can be read from {topic}")


def reader(broker: MqcoreBroker, schema: StructType | None = None, **options: Any) -> BatchReader:
    return BatchReader(settings_of(broker, **options), schema or schema_of(["queueId", "offset", "body"]))


def read(broker: MqcoreBroker, schema: StructType | None = None, **options: Any) -> list[dict[str, Any]]:
    """Read as Spark would, one partition after the other, in this process."""
    chosen = reader(broker, schema, **options)
    return [row for part in chosen.partitions() for batch in chosen.read(part) for row in batch.to_pylist()]


def bodies_of(rows: Sequence[dict[str, Any]]) -> list[bytes]:
    return sorted(row["body"] for row in rows)
