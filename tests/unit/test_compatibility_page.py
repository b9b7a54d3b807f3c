"""``docs/compatibility.md`` is what the tables say, and the tests that it names are there."""

from __future__ import annotations

import re

from tests.compat import compatibility_page


def test_the_page_is_not_stale() -> None:
    assert compatibility_page.main(["--check"]) == 0, "run python -m tests.compat.compatibility_page"


def test_each_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:tests|docs)/[\w/.]+)`", compatibility_page.page()))
    assert len(named) > 5
    assert sorted(name for name in named if not (compatibility_page.ROOT / name).exists()) == []


def test_codes_that_are_served_elsewhere_name_their_tests() -> None:
    assert "KeyError" not in compatibility_page.page()
    assert all(code in compatibility_page.TABLE for code in compatibility_page.ELSEWHERE)
