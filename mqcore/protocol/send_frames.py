"""The send requests of a producer: the readable twin of ``SendHead`` in ``mqcore._fast.client.frames``.

Take either from ``mqcore.protocol.codec``. Source: RocketMQ client/impl/MQClientAPIImpl.java, sendMessage.
"""

from __future__ import annotations

from mqcore.codes import CURRENT_VERSION, LanguageCode, RequestCode, SerializeType
from mqcore.errors import ProtocolError
from mqcore.layout import PROPERTIES_SIZE_MAX
from mqcore.protocol.frame import encode_frame
from mqcore.protocol.headers import encode_request
from mqcore.protocol.properties import encode_properties


class SendHead:
    """The header of the sends of one group to one queue."""

    def __init__(
        self,
        group: str,
        topic: str,
        default_topic: str,
        default_topic_queue_nums: int,
        queue_id: int,
        broker_name: str,
        is_batch: bool = False,
    ) -> None:
        self._code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        self._values = {
            "producer_group": group,
            "topic": topic,
            "default_topic": default_topic,
            "default_topic_queue_nums": default_topic_queue_nums,
            "queue_id": queue_id,
            "reconsume_times": 0,
            "unit_mode": False,
            "batch": is_batch,
            "bname": broker_name,
        }

    def encode(
        self, opaque: int, sys_flag: int, born_timestamp: int, flag: int, properties: dict[str, str], body: bytes
    ) -> bytes:
        """Return the whole frame of one send. Raises HeaderError, ProtocolError or FrameError when it cannot travel."""
        text = encode_properties(properties)
        size = len(text.encode("utf-8", "replace"))
        if size > PROPERTIES_SIZE_MAX:
            raise ProtocolError(f"properties too long: got {size} bytes, wanted at most {PROPERTIES_SIZE_MAX}")
        fields = encode_request(
            self._code, **self._values, sys_flag=sys_flag, born_timestamp=born_timestamp, flag=flag, properties=text
        )
        return encode_frame(
            self._code, opaque, 0, None, fields, body, LanguageCode.PYTHON, CURRENT_VERSION, SerializeType.JSON
        )
