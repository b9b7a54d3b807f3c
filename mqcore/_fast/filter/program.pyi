from typing import Literal

from typing_extensions import Buffer

class LoadedProgram:
    def __init__(self, data: Buffer) -> None: ...
    def run(self, properties: bytes) -> bool | None | Literal["error"]: ...
