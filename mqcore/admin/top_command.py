"""``mqcore top``: what a cluster does just now."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any, Final

import click

from mqcore.admin.options import broker_option, check_place, cluster_option
from mqcore.admin.output import OUTPUTS, print_json, print_table, show
from mqcore.admin.running import Common, run_admin
from mqcore.admin.top_data import Look, Looker, WatchedChange, change_between
from mqcore.admin.top_screen import TopScreen
from mqcore.admin.top_view import TABLES, rows_of

SIGNAL_EXIT: Final = 128


@click.command()
@cluster_option
@broker_option
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Print what has changed between two looks, and end; so it does in a pipe.")
@click.option(
    "-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True,
    help="How to print; json without --once is a line for each look, until it is ended.",
)  # fmt: skip
@click.pass_obj
def top(common: Common, cluster: str | None, broker: str | None, every: float, once: bool, output: str) -> None:
    """Watch brokers, their processes, topics, groups and replicas.

    Keys: 1 to 5 and Tab choose a table, s and r how it is sorted, / what is shown; arrows scroll, space pauses, + and -
    change the pace, q ends it.
    """
    check_place(cluster, broker)
    if output == "table" and not once and sys.stdin.isatty() and sys.stdout.isatty():
        place = broker or cluster or common.name_servers
        ended_by = run_admin(common, lambda admin: TopScreen(Looker(admin, cluster, broker), place, every).run())
        if ended_by not in (None, signal.SIGINT):
            sys.exit(SIGNAL_EXIT + ended_by)
        return
    goes_on = output == "json" and not once
    run_admin(common, lambda admin: print_looks(Looker(admin, cluster, broker), every, output, goes_on=goes_on))


async def print_looks(looker: Looker, every_s: float, output: str, *, goes_on: bool) -> None:
    """Print what has changed between two looks, and with *goes_on* between each two from then on."""
    last: Look | None = None
    while True:
        found = await looker.look()
        if last is not None:
            print_change(change_between(last, found), output)
            if not goes_on:
                return
        last = found
        await asyncio.sleep(every_s)


def print_change(change: WatchedChange, output: str) -> None:
    """Print all tables."""
    if output == "json":
        print_json(change.record())
        return
    show(change.record(), output, lambda: print_tables(change))


def print_tables(change: WatchedChange) -> None:
    for number, (name, columns) in enumerate(TABLES.items()):
        click.echo(f"{'' if number == 0 else chr(10)}{name}")
        cells: list[list[Any]] = [
            [column.text(getattr(row, column.key)) for column in columns] for row in rows_of(change, name)
        ]
        print_table([column.heading for column in columns], cells)
    for error in change.errors:
        click.echo(f"mqcore: {error}", err=True)
