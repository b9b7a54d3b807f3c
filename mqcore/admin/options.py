"""The options that many commands share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import click

from mqcore.admin.output import OUTPUTS, print_table, show
from mqcore.client.admin.base import Outcomes
from mqcore.client.admin.times import parse_time
from mqcore.codes import PermName

PERMISSIONS = {"rw": PermName.READ | PermName.WRITE, "r": PermName.READ, "w": PermName.WRITE, "none": 0}

AS_JSON = "mqcore.json"
"""In a command's ``meta``: --json was given."""


def _output(context: click.Context, option: click.Parameter, value: str) -> str:
    return "json" if context.meta.get(AS_JSON) else value


def _as_json(context: click.Context, option: click.Parameter, value: bool) -> None:
    context.meta[AS_JSON] = value


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    show_default=True,
    callback=_output,
    help="How to print.",
)
json_alias = click.option(
    "--json", is_flag=True, hidden=True, is_eager=True, expose_value=False, callback=_as_json, help="As -o json."
)
"""For commands that had it before all had --output."""
yes_option = click.option("--yes", is_flag=True, help="Really do it.")
cluster_option = click.option("--cluster", help="Only on the brokers of this cluster.")
broker_option = click.option("--broker", help="Only on this broker: its name, or host:port.")


def confirm(yes: bool, what: str) -> None:
    """Refuse a destructive command without ``--yes``: a usage error, and nothing is done."""
    if not yes:
        raise click.UsageError(f"this would {what}; add --yes to do it")


def check_place(cluster: str | None, broker: str | None) -> None:
    if cluster is not None and broker is not None:
        raise click.UsageError("give --cluster or --broker, not both")


def when(text: str) -> datetime:
    """Read an option: ISO 8601 (UTC when it names no zone), or how long ago, such as ``90m`` or ``2d``."""
    found = parse_time(text)
    if found is None:
        raise click.BadParameter(f"got {text!r}, wanted a time such as 2026-01-31T12:00 or 90m (ago)")
    return found


def show_outcomes(outcomes: Outcomes, subject: Mapping[str, str], done: str, output: str) -> None:
    """Print what became of a change at each address."""
    rows = {address: done if error is None else str(error) for address, error in outcomes.items()}
    show(
        {**subject, "brokers": rows},
        output,
        lambda: print_table(["BROKER", "RESULT"], list(rows.items())),
        [{**subject, "broker": address, "result": result} for address, result in rows.items()],
    )
