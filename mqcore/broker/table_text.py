"""The text of a configuration table's file: of a frozen view, in a thread, and only what has changed is rendered anew.

A table with tens of thousands of records takes seconds to be rendered, and one of them changes at a time. Records are
never changed, but replaced; so the text of each is kept beside it, and good as long as it is the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from mqcore.protocol import fastjson
from mqcore.protocol.topic_config import DataVersion


class Record(Protocol):
    """What a table has by name."""

    def to_json(self) -> dict[Any, Any]: ...


R = TypeVar("R", bound=Record)

TABLE_MARK: Final = "\x01table\x01"
VERSION_MEMBER: Final = "dataVersion"
ENTRY_START: Final = b",\n\t\t"
"""Of fastjson's pretty form, two objects deep; the first entry goes without the comma."""


class TableText(Generic[R]):
    """Renders a table as fastjson does: the data version, and *member* with its records by name. For one thread."""

    def __init__(self, member: str) -> None:
        self._member = member
        self._entries: dict[str, tuple[R, bytes]] = {}

    def render(self, table: Mapping[str, R], version: DataVersion) -> bytes:
        """Return the file's text. *table* may be read by others meanwhile, and changed by nobody."""
        head, tail = self._frame(version)
        if not table:
            return head + b"{}" + tail
        entries = [self._entry(name, record) for name, record in table.items()]
        if len(self._entries) > 2 * len(table):
            # What is gone is not kept for ever.
            self._entries = {name: self._entries[name] for name in table}
        return head + b"{" + ENTRY_START.join([b"", *entries])[1:] + b"\n\t}" + tail

    def _frame(self, version: DataVersion) -> tuple[bytes, bytes]:
        value = {VERSION_MEMBER: version.to_json(), self._member: TABLE_MARK}
        head, _, tail = fastjson.dumps(value, pretty=True).partition(fastjson.quote(TABLE_MARK).encode())
        return head, tail

    def _entry(self, name: str, record: R) -> bytes:
        found = self._entries.get(name)
        if found is not None and found[0] is record:
            return found[1]
        # Two objects deep it has its tabulators.
        text = fastjson.dumps({"": {name: record.to_json()}}, pretty=True)
        entry = text[len(INSIDE_START) : -len(INSIDE_END)]
        self._entries[name] = (record, entry)
        return entry


INSIDE_START: Final = b'{\n\t"":{\n\t\t'
INSIDE_END: Final = b"\n\t}\n}"
