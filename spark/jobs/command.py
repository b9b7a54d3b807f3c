"""What the jobs have in common as programs: options, the session, talk on standard error, exit codes.

Results go to standard output or to files, talk goes to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage,
3 there was nothing to work on.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from mqcore.errors import MQError
from mqcore.spark.source import FORMAT, RocketMQDataSource

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOTHING: Final = 3

_CAUSE: Final = re.compile(r"^(?:mqcore|builtins)\.[\w.]+: .+$|^\w+Error: .+$", re.MULTILINE)

Work = Callable[[SparkSession, argparse.Namespace], int]


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every job over brokers has."""
    made = argparse.ArgumentParser(prog=name, description=description)
    made.add_argument("--name-server", required=True, help="name servers, host:port;host:port")
    made.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="another option of the format rocketmq"
    )
    return made


def say(text: str) -> None:
    """Tell the user how far the job is."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Give the session of spark-submit, or a new one that is stopped at the end; the format is registered in it."""
    active = SparkSession.getActiveSession()
    made = active or SparkSession.builder.appName(name).getOrCreate()
    register(made)
    try:
        yield made
    finally:
        if active is None:
            made.stop()


def register(spark: SparkSession) -> None:
    """Make the format known to *spark*, if it has not found it by itself."""
    try:
        spark.dataSource.register(RocketMQDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to replace what it has found; later versions replace it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def run(name: str, made: argparse.ArgumentParser, work: Work, arguments: Sequence[str] | None) -> int:
    """Read the arguments, do the work and return the exit code; failures are told in one line each."""
    options = made.parse_args(arguments)
    try:
        extra_options(options)
        with session(name) as spark:
            return work(spark, options)
    except (MQError, PySparkException, Py4JJavaError, OSError) as error:
        say(f"{name}: failed: {reason(error)}")
        return FAILED


def reason(error: Exception) -> str:
    """Return the one line of an error that says why: those of Spark hold the traces of several processes."""
    text = str(error)
    found = _CAUSE.findall(text)
    return found[-1].strip() if found else text.partition("\n")[0]


def extra_options(options: argparse.Namespace) -> dict[str, str]:
    """Return what ``--option`` gave; exits with a usage message if one has no value."""
    extra = {}
    for text in options.option:
        name, found, value = text.partition("=")
        if not found or not name:
            raise SystemExit(f"--option: got {text!r}, wanted NAME=VALUE")
        extra[name] = value
    return extra


def read_topic(spark: SparkSession, options: argparse.Namespace, **more: str) -> DataFrame:
    """Return the rows of a batch read with the command line's options and *more*."""
    given = {"nameServer": options.name_server, **more, **extra_options(options)}
    return spark.read.format(FORMAT).options(**given).load()


def write_topic(frame: DataFrame, options: argparse.Namespace, **more: str) -> None:
    """Append a frame to topics, with the command line's options and *more*."""
    given = {"nameServer": options.name_server, **more, **extra_options(options)}
    frame.write.format(FORMAT).options(**given).mode("append").save()
