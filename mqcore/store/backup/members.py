"""Reading what a JSON file says that anybody may have written: each member is of its type, or the error names it."""

from __future__ import annotations

from typing import Any

from mqcore.errors import CorruptFileError


class Members:
    """One JSON object of the file at *path*; *where* it stands there."""

    def __init__(self, value: Any, path: str, where: str = "") -> None:
        if not isinstance(value, dict):
            raise CorruptFileError(f"{where or 'content'}: got {_kind(value)}, wanted an object", path)
        self._value = value
        self._path = path
        self._where = where

    def number(self, name: str, minimum: int = 0) -> int:
        """Return an integer that is *minimum* or more. Raises CorruptFileError, as all here do."""
        value = self._value.get(name)
        if type(value) is not int or not minimum <= value < 1 << 63:
            raise self._error(name, value, f"an integer from {minimum} on")
        return value

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._error(name, value, "a text")
        return value

    def yes(self, name: str) -> bool:
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise self._error(name, value, "true or false")
        return value

    def numbers(self, name: str, minimum: int = 0) -> list[int]:
        values = self._list(name)
        for at, value in enumerate(values):
            if type(value) is not int or not minimum <= value < 1 << 63:
                raise self._error(f"{name}[{at}]", value, f"an integer from {minimum} on")
        return values

    def pairs(self, name: str, minimum: int = 0) -> list[tuple[int, int]]:
        """Return a list of lists of two integers."""
        found = []
        for at, value in enumerate(self._list(name)):
            numbers = Members({"pair": value}, self._path, self._place(f"{name}[{at}]")).numbers("pair", minimum)
            if len(numbers) != 2:
                raise self._error(f"{name}[{at}]", value, "two integers")
            found.append((numbers[0], numbers[1]))
        return found

    def objects(self, name: str) -> list[Members]:
        """Return a list of objects."""
        return [Members(value, self._path, self._place(f"{name}[{at}]")) for at, value in enumerate(self._list(name))]

    def table(self, name: str) -> dict[str, Members]:
        """Return an object of objects."""
        value = self._value.get(name)
        if not isinstance(value, dict):
            raise self._error(name, value, "an object")
        return {key: Members(member, self._path, self._place(f"{name}.{key}")) for key, member in value.items()}

    def error(self, name: str, wanted: str) -> CorruptFileError:
        """Return the error for a member that is of its type and cannot be all the same."""
        return self._error(name, self._value.get(name), wanted)

    def _list(self, name: str) -> list[Any]:
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self._error(name, value, "a list")
        return value

    def _place(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _error(self, name: str, value: Any, wanted: str) -> CorruptFileError:
        got = value if isinstance(value, int | str) and not isinstance(value, bool) else _kind(value)
        return CorruptFileError(f"{self._place(name)}: got {got}, wanted {wanted}", self._path)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return {dict: "an object", list: "a list", str: "a text", bool: str(value).lower()}.get(type(value), "a number")
