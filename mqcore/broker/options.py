"""The broker's command line: RocketMQ's -c -n -p -m -h, and --store and --set for starts without a file.

Exit statuses are RocketMQ's: 0 after -h, -p and -m, 253 (its -3) for settings that cannot stand. A command line that
cannot be parsed exits with 2, as commands here do. ROCKETMQ_HOME is not needed.
Source: RocketMQ broker/BrokerStartup.java.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mqcore.config import Program, Settings, load
from mqcore.config.command_line import EXIT_BAD_SETTINGS, add_settings, put_last, tell
from mqcore.errors import ConfigError


def parse_arguments(
    argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Settings, Path | None]:
    """The settings that *argv* (sys.argv without the program unless given) asks for, and the file that keeps them.

    The file is the last that -c names: what an administrator changes is written there, and read by the next start.

    Exits by itself after -h, -p and -m, which print to standard output, and after an error, which goes to standard
    error. The warnings are left in the result: the caller logs them once logging is set up.
    """
    arguments = _parser().parse_args(argv)
    try:
        settings = _load(arguments, environment)
    except ConfigError as error:
        tell(Program.BROKER, error)
        sys.exit(EXIT_BAD_SETTINGS)
    if arguments.print_all or arguments.print_important:
        sys.stdout.write(settings.as_properties(important_only=not arguments.print_all))
        sys.exit(0)
    return settings, Path(arguments.files[-1]).absolute() if arguments.files else None


def read_again(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """What *argv* asks for by what its files say now. Raises ConfigError."""
    return _load(_parser().parse_args(argv), environment)


def _load(arguments: argparse.Namespace, environment: Mapping[str, str] | None) -> Settings:
    return load(Program.BROKER, files=arguments.files, overrides=_overrides(arguments), environment=environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mqcore.broker", description="A broker that speaks RocketMQ's protocol.", allow_abbrev=False
    )
    add_settings(parser)
    parser.add_argument("-n", "--namesrvAddr", metavar="ADDR", help="name servers, as in 10.0.0.1:9876;10.0.0.2:9876")
    parser.add_argument(
        "-m", "--printImportantConfig", dest="print_important", action="store_true", help="print the important settings"
    )
    parser.add_argument("--store", metavar="DIR", help="root of the store, the same as --set storePathRootDir=DIR")
    return parser


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """Property name to text."""
    overrides: dict[str, str] = {}
    given = (("storePathRootDir", arguments.store), ("namesrvAddr", arguments.namesrvAddr))
    put_last(overrides, [*given, *arguments.assignments])
    return overrides
