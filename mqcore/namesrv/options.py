"""The name server's command line: RocketMQ's -c -p -h, and --port, --dir and --set for starts without a file.

Exit statuses: 0 after -h and -p, 253 (RocketMQ's -3) for settings that cannot stand, 2 for a command line that cannot
be parsed. ROCKETMQ_HOME is not needed. Source: RocketMQ namesrv/NamesrvStartup.java.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mqcore.config import Program, Settings, load
from mqcore.config.command_line import EXIT_BAD_SETTINGS, add_settings, put_last, tell
from mqcore.errors import ConfigError


def parse_arguments(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that *argv* (sys.argv without the program unless given) asks for.

    Exits by itself after -h and -p, which print to standard output, and after an error, which goes to standard error.
    """
    arguments = _parser().parse_args(argv)
    try:
        settings = _load(arguments, environment)
    except ConfigError as error:
        tell(Program.NAMESRV, error)
        sys.exit(EXIT_BAD_SETTINGS)
    if arguments.print_all:
        sys.stdout.write(settings.as_properties())
        sys.exit(0)
    return settings


def read_again(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return what *argv* asks for by what its files say now. Raises ConfigError."""
    return _load(_parser().parse_args(argv), environment)


def _load(arguments: argparse.Namespace, environment: Mapping[str, str] | None) -> Settings:
    return load(Program.NAMESRV, files=arguments.files, overrides=_overrides(arguments), environment=environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mqcore.namesrv",
        description="A name server that speaks RocketMQ's protocol.",
        allow_abbrev=False,
    )
    add_settings(parser)
    parser.add_argument("--port", metavar="PORT", help="port to listen on, the same as --set listenPort=PORT")
    parser.add_argument("--dir", metavar="DIR", help="directory of kvConfig.json and namesrv.properties")
    return parser


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """Property name to text."""
    overrides: dict[str, str] = {}
    if arguments.files:
        # As NamesrvStartup, whatever the file says of it: what is changed later must be read by the next start.
        overrides["configStorePath"] = arguments.files[-1]
    if arguments.port is not None:
        overrides["listenPort"] = arguments.port
    if arguments.dir is not None:
        overrides["kvConfigPath"] = str(Path(arguments.dir) / "kvConfig.json")
        overrides["configStorePath"] = str(Path(arguments.dir) / "namesrv.properties")
    put_last(overrides, arguments.assignments)
    return overrides
