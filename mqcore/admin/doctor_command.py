"""``mqcore doctor``: what is wrong with this machine, a store's place and a cluster, and what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mqcore.admin.cluster_checks import cluster_findings
from mqcore.admin.findings import Health, show_findings
from mqcore.admin.machine_checks import machine_findings, store_findings
from mqcore.admin.options import output_option
from mqcore.admin.running import EXIT_ERROR, Common, run
from mqcore.client.settings.addresses import parse_addresses
from mqcore.transport.address_page import addresses_of


@click.command()
@click.option("--store", type=click.Path(path_type=Path), help="Look at this directory, too: its disk and its owner.")
@click.option("--here", is_flag=True, help="Look at this machine alone, and ask no name server.")
@click.option("--all", "everything", is_flag=True, help="Show what is well, too.")
@output_option
@click.pass_obj
def doctor(common: Common, store: Path | None, here: bool, everything: bool, output: str) -> None:
    """Find what is wrong, and say what to do. It ends with 1 if something does not work; a warning is none of that."""
    findings = [*machine_findings(), *(store_findings(store) if store is not None else ())]
    if not here:
        findings += run(lambda: cluster_findings(addresses_of(parse_addresses(common.name_servers))))
    show_findings(findings, output, everything=everything)
    if any(finding.state is Health.ERROR for finding in findings):
        sys.exit(EXIT_ERROR)
