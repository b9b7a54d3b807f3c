"""How the log is copied, for operators. Source: RocketMQ 5.x broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

import logging
from typing import Any, Final

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel, GroupControl, ReplicationFacts, SlaveFacts
from mqcore.broker.security.signature import ACCESS_KEY
from mqcore.codes import ResponseCode
from mqcore.errors import HeaderError, UnfitMemberError
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.group_bodies import GroupChange, GroupFacts
from mqcore.protocol.ha_bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo

logger = logging.getLogger(__name__)

NO_GROUP: Final = "this broker is in no failover group"


class AdminHaProcessor:
    """Answers from what the ha worker says."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def ha_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 907, of 5.x, in its words and some of our own."""
        if self._broker.replication is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this broker knows no replicas")
        facts = self._broker.replication.facts()
        slave = self._broker.slave if self._broker.is_slave else None
        status = HARuntimeInfo(
            master=not self._broker.is_slave,
            master_commit_log_max_offset=facts.end,
            in_sync_slave_nums=sum(is_in_sync(copy) for copy in facts.slaves),
            ha_connection_info=[connection(copy) for copy in facts.slaves],
            replicated_offset=facts.replicated_end,
            role="SLAVE" if self._broker.is_slave else str(self._broker.settings.store.broker_role),
        )
        if self._broker.group is not None:
            status.failover_group = self._broker.group.facts()
        if slave is not None:
            status.ha_client_runtime_info = client(facts, slave.ha_address)
            status.refusal = slave.refusal
        return request.reply(body=status.encode())

    async def epoch_cache(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 1007, of 5.x: members of a failover group find out by it how far their logs are one."""
        if self._broker.group is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, NO_GROUP)
        return request.reply(body=self._broker.group.epoch_cache().encode())

    async def change_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 29001, of our own: what an operator wants of a failover group, or whether it can be.

        It holds for the epoch that he has seen, and is begun when this answers. Raises HeaderError and EngineError.
        """
        group = self._broker.group
        if group is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, NO_GROUP)
        header = headers.decode_request(request.code, request.ext_fields)
        change, is_dry = _change_in(header), _flag_in(header, "dry_run", "dryRun")
        who = f"{channel_address(channel)} account={(request.ext_fields or {}).get(ACCESS_KEY)!r}"
        logger.info(
            "change of the group asked for action=%s member=%d epoch=%d dry_run=%s by=%s",
            change, header["member"], header["epoch"], is_dry, who,
        )  # fmt: skip
        try:
            await _make_change(group, change, header["member"], header["epoch"], is_dry=is_dry)
        except UnfitMemberError as error:
            logger.info("change of the group refused action=%s member=%d why=%s", change, header["member"], error)
            return request.reply(error.response_code, str(error))
        return request.reply()


def _change_in(header: dict[str, Any]) -> GroupChange:
    try:
        return GroupChange(header["action"])
    except ValueError as error:
        raise HeaderError("action", repr(header["action"]), f"one of {', '.join(GroupChange)}") from error


def _flag_in(header: dict[str, Any], name: str, wire_name: str) -> bool:
    text = header[name]
    if text not in ("true", "false"):
        raise HeaderError(wire_name, repr(text), "true or false")
    return bool(text == "true")


async def _make_change(group: GroupControl, change: GroupChange, member: int, epoch: int, *, is_dry: bool) -> None:
    now = group.facts().epoch
    if epoch != now:
        raise UnfitMemberError(f"the group is at epoch {now}, and this was asked of epoch {epoch}")
    unclean = change is GroupChange.UNCLEAN_ELECT
    match change, is_dry:
        case GroupChange.REMOVE, True:
            group.check_remove(member)
        case GroupChange.REMOVE, False:
            await group.remove(member)
        case _, True:
            group.check_order(member, unclean=unclean)
        case _, False:
            await group.order(member, unclean=unclean)


def is_in_sync(copy: SlaveFacts) -> bool:
    """Whether the slave has everything that the log has."""
    return copy.state == "COPYING" and copy.behind_bytes == 0


def connection(copy: SlaveFacts) -> HAConnectionRuntimeInfo:
    """Return what is known of a slave."""
    return HAConnectionRuntimeInfo(
        addr=copy.address,
        slave_ack_offset=copy.acked,
        diff=copy.behind_bytes,
        in_sync=is_in_sync(copy),
        transferred_byte_in_second=copy.bytes_per_second,
        transfer_from_where=copy.sent,
        state=copy.state,
        behind_ms=copy.behind_ms,
    )


def client(facts: ReplicationFacts, master: str) -> HAClientRuntimeInfo:
    """Return what a slave knows of its master."""
    return HAClientRuntimeInfo(
        master_addr=master,
        transferred_byte_in_second=facts.bytes_per_second,
        max_offset=facts.end,
        last_read_timestamp=facts.master_seen_ms,
        last_write_timestamp=facts.master_seen_ms,
        master_flush_offset=facts.master_end,
        activated=facts.is_copying,
    )


def runtime_rows(broker: BrokerContext) -> dict[str, str]:
    """Return rows of the runtime table; RocketMQ has none, and without replicas there are none here."""
    if broker.replication is None:
        return {}
    facts = broker.replication.facts()
    rows = group_rows(broker.group.facts()) if broker.group is not None else {}
    if facts.slaves:
        rows |= {"haReplicatedOffset": str(facts.replicated_end), "haSlaves": str(len(facts.slaves))}
    for copy in facts.slaves:
        rows[f"haSlave_{copy.address}"] = (
            f"{copy.state} acked={copy.acked} behindBytes={copy.behind_bytes} behindMs={copy.behind_ms}"
        )
    if broker.slave is not None and broker.is_slave:
        rows["haMaster"] = broker.slave.ha_address
        rows["haMasterState"] = "COPYING" if facts.is_copying else broker.slave.refusal or "NOT CONNECTED"
        rows["haMasterBehindBytes"] = str(max(0, facts.master_end - facts.end))
    return rows


def group_rows(facts: GroupFacts) -> dict[str, str]:
    """Return what the runtime table says of a failover group. Flags are 0 or 1, and what is not known is -1."""
    rows = {
        "failoverMember": str(facts.me),
        "failoverPhase": facts.phase,
        "failoverIsMaster": str(int(facts.is_master)),
        "failoverEpoch": str(facts.epoch),
        "failoverMaster": str(facts.master if facts.master is not None else -1),
        "failoverInSync": " ".join(map(str, sorted(facts.in_sync))),
        "failoverInSyncNums": str(len(facts.in_sync)),
        "failoverEnd": str(facts.end),
        "failoverConfirmed": str(facts.confirmed),
        "failoverEngineSilentMs": str(facts.engine_silent_ms),
        "failoverChangedMs": str(facts.changed_ms),
        "failoverWhy": facts.why,
    }
    for status in facts.member_statuses:
        if not status.is_removed:
            rows[f"failoverMember_{status.member}"] = (
                f"there={status.is_there:d} inSync={status.is_in_sync:d} trusted={status.is_trusted:d} "
                f"end={status.end} acked={status.acked} behindBytes={status.behind_bytes} behindMs={status.behind_ms}"
            )
    return rows
