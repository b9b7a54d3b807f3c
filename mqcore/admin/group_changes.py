"""What an operator changes in a failover group, by way of the member that knows the most, and how he sees it done."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mqcore import clock
from mqcore.client.admin import Admin
from mqcore.client.admin.group_report import GroupReport, ask
from mqcore.errors import ClientError, MQError, PermissionDeniedError
from mqcore.protocol.group_bodies import GroupChange, GroupFacts

LOOK_S: Final = 0.02


class GroupChanger:
    """Changes the group of *report*, if it is still as that says."""

    def __init__(self, admin: Admin, report: GroupReport) -> None:
        self._admin = admin
        self._report = report
        self._epoch = report.facts.epoch

    async def let_lead(self, change: GroupChange, member: int, timeout_s: float, *, dry_run: bool) -> dict[str, Any]:
        """Have *member* lead, wait until it does, and return what has happened, and within how many ms.

        Raises PermissionDeniedError where the group refuses it, ClientError if it does not lead within the time.
        """
        began = clock.monotonic_s()
        await self._ask_for(change, member, dry_run=dry_run)
        line = self._line(change, member, dry_run=dry_run)
        if dry_run:
            return line
        facts = await self._await_leader(member, began + timeout_s)
        return {**line, "epoch": facts.epoch, "ms": round((clock.monotonic_s() - began) * 1000)}

    async def remove(self, member: int, *, dry_run: bool) -> dict[str, Any]:
        """Have *member* forgotten. Raises PermissionDeniedError where the group refuses it."""
        await self._ask_for(GroupChange.REMOVE, member, dry_run=dry_run)
        return self._line(GroupChange.REMOVE, member, dry_run=dry_run)

    def _line(self, change: GroupChange, member: int, *, dry_run: bool) -> dict[str, Any]:
        return {
            "cluster": self._report.cluster,
            "broker": self._report.broker_name,
            "action": change.value,
            "member": member,
            "masterBefore": self._report.facts.master,
            "epoch": self._epoch,
            "dryRun": dry_run,
        }

    async def _ask_for(self, change: GroupChange, member: int, *, dry_run: bool) -> None:
        """Ask the members in turn: one that knows less, or cannot reach the engine, does not speak for the group."""
        failure: MQError | None = None
        for facts in self._report.views():
            address = self._report.addresses[facts.me]
            try:
                return await self._admin.change_failover_group(address, change, member, self._epoch, dry_run=dry_run)
            except PermissionDeniedError:
                raise
            except MQError as error:
                failure = failure or error
        assert failure is not None  # a report has one answer at least
        raise failure

    async def _await_leader(self, member: int, until_s: float) -> GroupFacts:
        # It has announced itself, or it could not have been asked for.
        address = self._report.addresses.get(member) or self._announced_address(member)
        while clock.monotonic_s() < until_s:
            answer = await ask(self._admin.ha_status, address)
            facts = None if isinstance(answer, MQError) else answer.failover_group
            if facts is not None and facts.epoch > self._epoch:
                if facts.is_master:
                    return facts
                if facts.master != member:
                    raise ClientError(f"member {facts.master} leads epoch {facts.epoch} instead of member {member}")
            await asyncio.sleep(LOOK_S)
        raise ClientError(f"member {member} does not lead yet; look at mqcore ha status, and at its log")

    def _announced_address(self, member: int) -> str:
        return next(said.address for said in self._report.facts.member_statuses if said.member == member)
