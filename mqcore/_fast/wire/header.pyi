from typing import TypedDict

from typing_extensions import Buffer

class ScannedCommand(TypedDict):
    code: int
    language: int
    version: int
    opaque: int
    flag: int
    serialize_type: int
    ext_fields: dict[str, str] | None
    body: bytes

def scan(payload: Buffer) -> ScannedCommand | None: ...
def parse_i64(text: bytes) -> int | None: ...
