"""How a check of a processor says no."""

from __future__ import annotations

from mqcore.codes import ResponseCode


class Refused(Exception):
    """A check said no; *code* and *remark* go into the reply."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark
