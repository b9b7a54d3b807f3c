"""Consumer and delay offsets of the whole broker: copied to slaves, cloned, corrected.

Source: RocketMQ broker/processor/AdminBrokerProcessor.java.
"""

from __future__ import annotations

from typing import Final

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.protocol import fastjson, headers
from mqcore.protocol.bodies import QueryCorrectionOffsetBody
from mqcore.protocol.command import RemotingCommand

NO_CORRECTION: Final = 2**63 - 1


class AdminOffsetProcessor:
    """Reads and changes the offset table."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def all_offsets(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 43."""
        return request.reply(body=await self._broker.offsets.all_text())

    async def delay_offsets(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 45; a slave writes the body to its delayOffset.json as it is."""
        return request.reply(body=fastjson.dumps(self._broker.schedule.to_json()))

    async def clone_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 314.

        A blank topic is to mean every topic of the source; upstream then copies the blank one's offsets, which do not
        exist. The tools never ask for it, and the offsets of a group are too dear for a surprise: kept.
        """
        header = headers.decode_request(request.code, request.ext_fields)
        source, topic = header["src_group"], (header["topic"] or "").strip()
        if self._broker.topics.find(topic) is not None:
            members = self._broker.consumers.groups.get(source)
            skipped = members is not None and bool(members.subscriptions) and topic not in members.subscriptions
            if header["offline"] or not skipped:
                await self._broker.offsets.clone(source, header["dest_group"], topic)
        return request.reply()

    async def correction_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 308: per queue the lowest offset of any group.

        Queues where the compared group is lower still are to need no correction, but upstream looks that group up
        under the topic's name, and the topic under the group's; so do we.
        """
        header = headers.decode_request(request.code, request.ext_fields)
        filtered = [group for group in (header["filter_groups"] or "").split(",") if group]
        offsets = await self._broker.offsets.lowest_offsets(header["topic"], filtered, self._broker.store.min_offset)
        compared = await self._broker.offsets.queues(group=header["topic"], topic=header["compare_group"])
        for queue_id, offset in compared.items():
            if queue_id in offsets and offsets[queue_id] > offset:
                offsets[queue_id] = NO_CORRECTION
        return request.reply(body=QueryCorrectionOffsetBody(offsets).encode())
