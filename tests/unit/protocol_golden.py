"""The rows of protocol_golden.txt: bytes that RocketMQ 4.9.8's own classes wrote (see ProtocolGolden.java)."""

from __future__ import annotations

from pathlib import Path

_HEX = ":hex"


def _read() -> dict[str, bytes]:
    rows: dict[str, bytes] = {}
    text = Path(__file__).with_name("protocol_golden.txt").read_text(encoding="utf-8")
    for line in text.split("\n"):
        name, tab, content = line.partition("\t")
        if name.endswith(_HEX):
            rows[name.removesuffix(_HEX)] = bytes.fromhex(content)
        elif tab:
            rows[name] = content.replace("\\n", "\n").replace("\\t", "\t").encode()
    return rows


GOLDEN = _read()


def rows(prefix: str) -> list[str]:
    """Return the names that begin with *prefix*."""
    names = [name for name in GOLDEN if name.startswith(prefix)]
    assert names, prefix
    return names
