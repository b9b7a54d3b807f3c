from typing_extensions import Buffer

from mqcore.protocol.frame import FrameFields

class SendHead:
    def __init__(
        self,
        group: str,
        topic: str,
        default_topic: str,
        default_topic_queue_nums: int,
        queue_id: int,
        broker_name: str,
        is_batch: bool = False,
    ) -> None: ...
    def encode(
        self, opaque: int, sys_flag: int, born_timestamp: int, flag: int, properties: dict[str, str], body: Buffer
    ) -> bytes: ...

def encode_frame(
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str] | None,
    body: bytes,
    language: int,
    version: int,
    serialize_type: int,
) -> bytes: ...
def decode_frame(payload: Buffer) -> FrameFields: ...
def decode_head(payload: Buffer) -> tuple[FrameFields, int]: ...
