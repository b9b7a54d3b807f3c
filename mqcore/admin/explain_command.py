"""``mqcore explain``: why a group does not consume a topic, or a message, and what to do."""

from __future__ import annotations

import re
import sys
from typing import Final

import click

from mqcore.admin.explain_checks import explain as explain_facts
from mqcore.admin.explain_facts import ConsumptionFacts, gather_facts, look_again
from mqcore.admin.explain_message import explain_message
from mqcore.admin.findings import Finding, Health, show_findings
from mqcore.admin.options import output_option
from mqcore.admin.running import EXIT_ERROR, Common, run

MESSAGE_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")
"""A unique id or an offset id, of an IPv4 or IPv6 host. A topic with such a name must be given by --topic."""


@click.command()
@click.argument("group")
@click.argument("subject", metavar="[TOPIC|MESSAGE-ID]", required=False)
@click.option("--topic", help="Only this topic; with a MESSAGE-ID, the one that has it.")
@click.option("--all", "everything", is_flag=True, help="Show what is well, too.")
@click.option(
    "--look",
    "look_s",
    type=click.FloatRange(0),
    default=2.0,
    show_default=True,
    help="Look at members that are behind once more after so many seconds, to see whether they move; 0: only once.",
)
@output_option
@click.pass_obj
def explain(
    common: Common, group: str, subject: str | None, topic: str | None, everything: bool, look_s: float, output: str
) -> None:
    """Say why GROUP does not consume (TOPIC, or one message), and what to do.

    Exits with 1 if something keeps it from consuming; what a group only has to catch up with is none of that.
    """
    msg_id = subject if subject is not None and MESSAGE_ID.fullmatch(subject) else None
    if subject is not None and msg_id is None:
        if topic is not None:
            raise click.UsageError(f"got a topic twice: {subject} and {topic}")
        topic = subject
    findings = run(lambda: find(common, group, topic, msg_id, look_s))
    wrong = sum(finding.state is Health.ERROR for finding in findings)
    show_findings(findings, output, everything=everything or msg_id is not None)
    if wrong:
        sys.exit(EXIT_ERROR)


async def find(common: Common, group: str, topic: str | None, msg_id: str | None, look_s: float) -> list[Finding]:
    """Return what there is to be said."""
    async with common.client() as mq:
        facts = await gather_facts(mq.admin, group, topic)
        if msg_id is not None:
            return await explain_message(mq, facts, msg_id)
        if look_s and is_behind(facts):
            facts = await look_again(mq.admin, facts, topic, look_s)
        return explain_facts(facts)


def is_behind(facts: ConsumptionFacts) -> bool:
    """Whether messages wait in queues that members hold, so that it matters whether they move."""
    return any(
        queue in facts.bounds and offset < facts.bounds[queue].max_offset
        for queue, offset in facts.standing.offsets.items()
    )
