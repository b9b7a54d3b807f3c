"""How ``mqcore store export`` writes messages: JSON lines or Parquet, into a file at once or to standard output."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import orjson

from mqcore.errors import StoreError
from mqcore.files import TEMPORARY_SUFFIX, sync_directory
from mqcore.store.message_columns import BY_NAME, ColumnBuffers, MessageBatch

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    "topic", "queue_id", "queue_offset", "msg_id", "offset_msg_id", "tags", "keys", "properties", "born_timestamp",
    "store_timestamp", "born_host", "reconsume_times", "sys_flag", "flag", "body",
)  # fmt: skip
MICROSECONDS: Final = 1000


class MessageWriter(Protocol):
    """Writes messages, batch by batch."""

    def write(self, batch: MessageBatch) -> None: ...
    def close(self) -> None: ...


class JsonLinesWriter:
    """A JSON object a line, with the members of ``consume --json``; a body that is not UTF-8 stands in bodyBase64."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, batch: MessageBatch) -> None:
        columns = batch.to_dict()
        for name in ("born_timestamp", "store_timestamp"):
            columns[name] = (batch.columns[name].values // MICROSECONDS).tolist()
        for name in ("queue_id", "queue_offset", "reconsume_times", "sys_flag", "flag"):
            columns[name] = columns[name].tolist()
        rows = zip(*(columns[name] for name in COLUMNS), strict=True)
        self._stream.write(b"".join(orjson.dumps(members(*row)) + b"\n" for row in rows))

    def close(self) -> None:
        self._stream.flush()


def members(
    topic: str, queue_id: int, queue_offset: int, msg_id: str, offset_msg_id: str, tags: str | None, keys: str | None,
    properties: dict[str, str], born_timestamp: int, store_timestamp: int, born_host: str, reconsume_times: int,
    sys_flag: int, flag: int, body: bytes,
) -> dict[str, Any]:  # fmt: skip
    """Return the members of one line."""
    found: dict[str, Any] = {
        "topic": topic,
        "queueId": queue_id,
        "offset": queue_offset,
        "msgId": msg_id,
        "offsetMsgId": offset_msg_id,
        "tag": tags,
        "keys": [] if keys is None else keys.split(),
        "properties": properties,
        "bornTimestamp": born_timestamp,
        "storeTimestamp": store_timestamp,
        "bornHost": born_host,
        "reconsumeTimes": reconsume_times,
        "sysFlag": sys_flag,
        "flag": flag,
    }
    try:
        found["body"] = body.decode()
    except UnicodeDecodeError:
        found["bodyBase64"] = base64.b64encode(body).decode()
    return found


class ParquetWriter:
    """A Parquet file with the column names of the Spark connector; a batch becomes a row group."""

    def __init__(self, stream: IO[bytes]) -> None:
        """Raises StoreError without pyarrow."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as parquet
        except ModuleNotFoundError:
            raise StoreError(
                f"Parquet needs the package pyarrow, which comes with mqcore[parquet]: {sys.executable} -m pip install "
                "pyarrow; or --format jsonl"
            ) from None
        from mqcore.store.reader_arrow import arrow_type

        columns = [BY_NAME[name] for name in COLUMNS]
        self._schema = pa.schema([(column.spark_name, arrow_type(column.kind)) for column in columns])
        self._writer = parquet.ParquetWriter(stream, self._schema, compression="zstd")

    def write(self, batch: MessageBatch) -> None:
        import pyarrow as pa

        arrays = [self._array(batch.columns[name], batch.row_count, number) for number, name in enumerate(COLUMNS)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _array(self, column: ColumnBuffers, row_count: int, number: int) -> pa.Array:
        from mqcore.store.reader_arrow import to_array

        return to_array(column, row_count, self._schema.field(number).type)

    def close(self) -> None:
        self._writer.close()


FORMATS: Final[dict[str, type[JsonLinesWriter] | type[ParquetWriter]]] = {
    "jsonl": JsonLinesWriter,
    "parquet": ParquetWriter,
}


@contextlib.contextmanager
def target_stream(target: Path | None) -> Iterator[IO[bytes]]:
    """Give a stream to *target*, or to standard output; the file is there when all is in it, durably, and not before.

    Raises StoreError if it is there already or its directory is not, OSError.
    """
    if target is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if target.exists():
        raise StoreError(f"{target} is there already: name another file, or remove it")
    if not target.parent.is_dir():
        raise StoreError(f"{target.parent} is no directory")
    making = target.with_name(f".{target.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with making.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        making.rename(target)
    except BaseException:
        making.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)
