"""What the command lines of the broker and the name server have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Final

from mqcore.config.table import Program
from mqcore.errors import ConfigError
from mqcore.version import __version__

EXIT_BAD_SETTINGS: Final = 253
"""RocketMQ's -3: settings that cannot stand."""

EXIT_START_FAILED: Final = 255
"""RocketMQ's -1."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Let *parser* take -c, -p and --set: ``files``, ``print_all`` and ``assignments``, pairs of key and value."""
    parser.add_argument(
        "-c",
        "--configFile",
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        help="properties file; may be repeated; remote updates are written to the last one",
    )
    parser.add_argument("--version", action="version", version=f"mqcore {__version__}")
    parser.add_argument("-p", "--printConfigItem", dest="print_all", action="store_true", help="print all settings")
    parser.add_argument(
        "--set",
        dest="assignments",
        metavar="KEY=VALUE",
        type=_assignment,
        action="append",
        default=[],
        help="one setting; may be repeated; wins over everything else",
    )


def tell(program: Program, error: ConfigError) -> None:
    """Say on standard error what cannot stand, a line for each."""
    for line in str(error).splitlines():
        print(f"mqcore {program}: {line}", file=sys.stderr)


def put_last(overrides: dict[str, str], given: Iterable[tuple[str, str | None]]) -> None:
    """Put what is given; a repeated key keeps its last place, so that the last spelling of a setting wins."""
    for key, value in given:
        if value is not None:
            overrides.pop(key, None)
            overrides[key] = value


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted KEY=VALUE")
    return key.strip(), value
