"""Small files beside the data, wherever Spark can write: HDFS, object stores, a local disk. On the driver only."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Directory:
    """A directory by Spark's own file systems. Texts are UTF-8; errors are Java's, as Py4JJavaError."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._java: Any = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())

    def names(self) -> set[str]:
        """Return the names in the directory; none if it does not exist."""
        if not self._files.exists(self._path):
            return set()
        return {status.getPath().getName() for status in self._files.listStatus(self._path)}

    def read(self, name: str) -> str:
        stream = self._files.open(self._child(name))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file that is there in whole or not at all; it must not exist."""
        unfinished = self._child(f"_{name}.unfinished")
        stream = self._files.create(unfinished, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self._files.rename(unfinished, self._child(name)):
            raise OSError(f"{self._child(name).toString()} could not be written")

    def _child(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self._path, name)
