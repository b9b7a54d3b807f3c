"""Who may do what at each master, as it says."""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.client.admin import Admin
from mqcore.client.admin.accounts import AccessRules
from mqcore.console.data.asking import each
from mqcore.errors import MQError


@dataclass(frozen=True, slots=True)
class BrokerRules:
    """The accounts of one broker, or why they are not known. *is_off*: it has no access control."""

    address: str
    rules: AccessRules | None
    error: MQError | None

    @property
    def is_off(self) -> bool:
        return self.error is not None and "access control is off" in str(self.error)


async def broker_rules(admin: Admin) -> list[BrokerRules]:
    """Ask every master for its accounts."""
    answers = await each(await admin.master_addresses(), admin.access_rules)
    return [
        BrokerRules(address, None, answer) if isinstance(answer, MQError) else BrokerRules(address, answer, None)
        for address, answer in answers.items()
    ]
