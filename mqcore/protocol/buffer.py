"""What bytes are read from, wherever they came from. It imports nothing: workers need no JSON for it."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
