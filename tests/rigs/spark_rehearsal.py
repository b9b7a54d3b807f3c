"""A program that has Spark's JVM load what tests have it load: queries, files, a stream; see ``spark_home.py``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def rehearse(java_options: str, directory: Path) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    numbers = session.range(100).selectExpr("id", "id % 7 AS part", "CAST(id AS STRING) AS text")
    numbers.write.partitionBy("part").parquet(str(directory / "numbers"))
    written = session.read.parquet(str(directory / "numbers"))
    written.where("text > '3'").groupBy("part").count().orderBy("part").collect()
    written.join(numbers, "id").toPandas()
    numbers.write.json(str(directory / "json"))
    stream = session.readStream.schema(written.schema).parquet(str(directory / "numbers"))
    query = stream.writeStream.format("parquet").trigger(availableNow=True)
    query.option("checkpointLocation", str(directory / "checkpoint")).start(str(directory / "copy")).awaitTermination()
    gateway = session.sparkContext._gateway
    session.stop()
    # The archive is made when the JVM ends in order, as it does when its input does.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        rehearse(sys.argv[1], Path(temporary))
