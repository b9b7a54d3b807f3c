"""``mqcore completion`` and ``mqcore man``: what a shell and ``man`` want to know."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from mqcore.admin.man_page import man_page
from mqcore.admin.output import write

VARIABLE: Final = "_MQCORE_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what has SHELL complete commands and options: eval "$(mqcore completion bash)"."""
    made = get_completion_class(shell)
    assert made is not None  # click has all of SHELLS
    if shell == "bash":  # whose class asks the bash that runs for its version, and there may be none
        made._check_version = staticmethod(lambda: None)  # type: ignore[attr-defined]
    write((made(context.find_root().command, {}, "mqcore", VARIABLE).source() + "\n").encode())


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.pass_context
def man(context: click.Context, file: Path | None) -> None:
    """Print the manual page, or write it to FILE: mqcore man > mqcore.1; man -l mqcore.1."""
    root = context.find_root().command
    assert isinstance(root, click.Group)
    text = man_page(root)
    if file is None:
        sys.stdout.write(text)
    else:
        file.write_text(text)
