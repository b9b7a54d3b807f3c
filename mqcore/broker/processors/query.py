"""QUERY_MESSAGE and VIEW_MESSAGE_BY_ID. Source: RocketMQ broker/processor/QueryMessageProcessor.java."""

from __future__ import annotations

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.codes import ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand


class QueryProcessor:
    """Finds messages by key or by place. Bodies are raw records, one after the other."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def query_message(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 12. A query by unique key is bounded by the broker's own limit, not by the client's."""
        header = headers.decode_request(request.code, request.ext_fields)
        store = self._broker.settings.store
        count_max = header["max_num"]
        if (header["unique_key_query"] or "") == "true":
            count_max = store.default_query_max_num
        count_max = min(count_max, store.max_msgs_num_batch)
        found = self._broker.store.query_message(
            header["topic"], header["key"], count_max, header["begin_timestamp"], header["end_timestamp"]
        )
        if not found.records:
            nowhere = headers.encode_response(
                request.code, index_last_update_timestamp=0, index_last_update_phyoffset=0
            )
            return request.reply(
                ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", nowhere
            )
        ext_fields = headers.encode_response(
            request.code,
            index_last_update_timestamp=found.index_last_update_timestamp,
            index_last_update_phyoffset=found.index_last_update_physical_offset,
        )
        return request.reply(ext_fields=ext_fields, body=b"".join(found.records))

    async def view_message(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 33."""
        offset = headers.decode_request(request.code, request.ext_fields)["offset"]
        record = self._broker.store.look_message(offset)
        if record is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return request.reply(body=record)
