"""The manual page mqcore(1), in the man macros, made from the help of all commands."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

import click

from mqcore.admin.connection import CONTEXT_VARIABLE
from mqcore.admin.contexts import FILE_VARIABLE as CONTEXTS_VARIABLE
from mqcore.client.settings.classes import NAME_SERVER_VARIABLES
from mqcore.client.settings.configuration import FILE_VARIABLE as CONFIG_VARIABLE
from mqcore.version import __version__

DATE: Final = "2026-11-24"
"""Of the page's form; fixed, so that equal commands give equal pages."""

LINE_LENGTH: Final = 76

EXIT_CODES: Final = {
    "0": "All well.",
    "1": "An error: it says what, and what to do about it.",
    "2": "Wrong usage; nothing was done.",
    "3": "What was asked about does not exist.",
    "4": "Done in part; what was not is named.",
}
ENVIRONMENT: Final = {
    ", ".join(NAME_SERVER_VARIABLES): "The name servers; the first that is set.",
    CONTEXT_VARIABLE: "The context in use, where no variable names name servers.",
    CONTEXTS_VARIABLE: "The file of contexts, in place of $XDG_CONFIG_HOME/mqcore/contexts.json.",
    CONFIG_VARIABLE: "A TOML file with settings of the client.",
    "NO_COLOR": "No colors, whatever its value.",
}


def man_page(root: click.Group, name: str = "mqcore") -> str:
    """Return the page for *root* and everything below it."""
    lines = [
        f'.TH {name.upper()} 1 "{DATE}" "{name} {__version__}" "User Commands"',
        ".SH NAME",
        f"{name} \\- send, consume, and look after a RocketMQ cluster",
        ".SH SYNOPSIS",
        f".B {name}",
        r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]...",
        ".SH DESCRIPTION",
        *paragraphs(root.help or ""),
        ".SH OPTIONS",
        *options(root, root.make_context(name, [], resilient_parsing=True)),
        ".SH COMMANDS",
    ]
    for path, command in sorted(leaves(root)):
        lines += section(name, path, command)
    lines += [".SH EXIT STATUS", *definitions(EXIT_CODES), ".SH ENVIRONMENT", *definitions(ENVIRONMENT)]
    return "\n".join(lines) + "\n"


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Give all commands that do something, with the words that lead to them; hidden ones are left out."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


def section(name: str, path: tuple[str, ...], command: click.Command) -> list[str]:
    """Return what the page says of one command."""
    context = command.make_context(" ".join((name, *path)), [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    return [
        f'.SS "{escaped(" ".join((name, *path)))} {escaped(usage)}"',
        *paragraphs(command.help or ""),
        *options(command, context),
    ]


def options(command: click.Command, context: click.Context) -> list[str]:
    """Return the list of a command's options."""
    records = (param.get_help_record(context) for param in command.get_params(context))
    return definitions(dict(record for record in records if record is not None))


def definitions(rows: dict[str, str]) -> list[str]:
    return [line for term, text in rows.items() for line in (".TP", f"\\fB{escaped(term)}\\fR", *wrapped(text))]


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text."""
    parts = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return [line for part in parts for line in (".PP", *wrapped(part))][1:]


def wrapped(text: str) -> list[str]:
    """Return *text* in lines, of which none is taken for a request."""
    lines = textwrap.wrap(escaped(text), LINE_LENGTH, break_long_words=False, break_on_hyphens=False)
    return [rf"\&{line}" if line.startswith((".", "'")) else line for line in lines] or [r"\&"]


def escaped(text: str) -> str:
    """Return *text* as the formatter prints it: no hyphen and no quote becomes another sign."""
    made = " ".join(text.split())
    return made.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")
