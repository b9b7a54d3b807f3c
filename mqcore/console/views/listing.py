"""Lists that are searched and turned over page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from starlette.requests import Request

PAGE_ROWS: Final = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list: what it has, which of how many pages it is, and what was searched for."""

    rows: Sequence[T]
    total: int
    number: int
    pages: int
    search: str


def listing(request: Request, rows: Sequence[T], name_of: Callable[[T], str]) -> ListPage[T]:
    """Return the page of *rows* that the request names, of those whose name has the text it searches for."""
    search = request.query_params.get("search", "").strip()
    found = [row for row in rows if search.lower() in name_of(row).lower()]
    pages = max(1, -(-len(found) // PAGE_ROWS))
    text = request.query_params.get("page", "1")
    number = min(max(int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 1, 1), pages)
    return ListPage(found[(number - 1) * PAGE_ROWS : number * PAGE_ROWS], len(found), number, pages, search)
