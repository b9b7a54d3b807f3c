"""docs as a site: built strictly, whole, and with nothing in it that a browser would get from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from tests.rigs.browser import Browser, missing_tools

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
HOOKS: Final = DOCS / "_site" / "hooks.py"
LOADS: Final = {
    "audio": ("src",), "embed": ("src",), "iframe": ("src",), "image": ("href",), "img": ("src", "srcset"),
    "input": ("src",), "object": ("data",), "script": ("src",), "source": ("src", "srcset"), "track": ("src",),
    "use": ("href",), "video": ("src", "poster"),
}  # fmt: skip
"""Which attributes of which elements a browser follows by itself; those of ``link`` depend on its ``rel``."""

NOT_LOADED: Final = {"canonical", "next", "prev", "alternate", "author", "license"}
OF_A_SHEET: Final = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)
NUMBER: Final = re.compile(r"\d[\d,.]*\d|\d")


class Look(HTMLParser):
    """What a page loads, where it leads, and what can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()
        self.components: set[str] = set()
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name.removeprefix("xlink:"): value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.ids.add(found.get("id", ""))
        self.classes.update(found.get("class", "").split())
        self.components.add(found.get("data-md-component", ""))
        self.loaded += [found[name] for name in LOADS.get(tag, ()) if name in found]
        self.loaded += sheet_urls(found.get("style", ""))
        if tag == "link" and not set(found.get("rel", "").split()) <= NOT_LOADED:
            self.loaded.append(found["href"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loaded += sheet_urls(data)
            self._in_style = False


def sheet_urls(text: str) -> list[str]:
    return [first or second for first, second in OF_A_SHEET.findall(text)]


def is_elsewhere(url: str) -> bool:
    parts = urlsplit(url.strip())
    return bool(parts.netloc) or parts.scheme not in ("", "data")


@dataclass
class Site:
    """A built site: its folder, and its pages by their path."""

    folder: Path
    pages: dict[Path, Look] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.rglob("*.html")):
            self.pages[path] = Look(path.read_text(encoding="utf-8"))

    def has(self, url: str, path: Path) -> bool:
        """Whether the file is there that *url* means in the page *path*, and the place in it."""
        parts = urlsplit(url)
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        place = parts.fragment
        return target.is_file() and (not place or target not in self.pages or place in self.pages[target].ids)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return Site(folder)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = spec_from_file_location("site_hooks", HOOKS)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_page_loads_anything_from_another_host(site: Site) -> None:
    assert len(site.pages) > 60
    found = [(path.name, url) for path, page in site.pages.items() for url in page.loaded if is_elsewhere(url)]
    assert found == []
    assert sum(len(page.loaded) for page in site.pages.values()) > 5 * len(site.pages)


def test_no_sheet_and_no_picture_loads_anything_from_another_host(site: Site) -> None:
    sheets = [*site.folder.rglob("*.css"), *site.folder.rglob("*.svg")]
    assert len(sheets) > 5
    found = [(path.name, url) for path in sheets for url in sheet_urls(path.read_text()) if is_elsewhere(url)]
    assert found == []


def test_nothing_makes_the_themes_script_ask_another_host(site: Site) -> None:
    """It gets diagrams' script from unpkg.com where there is one, and a repository's stars from its host."""
    assert [path for path, page in site.pages.items() if "mermaid" in page.classes or "source" in page.components] == []


def test_what_would_be_loaded_from_elsewhere_is_seen() -> None:
    for text in (
        '<script src="https://unpkg.com/x"></script>', '<link rel="preconnect" href="//fonts.gstatic.com">',
        '<img src="http://example.org/a.png">', "<style>@import 'https://example.org/a.css'</style>",
        '<p style="background: url(https://example.org/a.png)">', '<svg><use xlink:href="https://example.org/a.svg"/></svg>',
    ):  # fmt: skip
        assert any(map(is_elsewhere, Look(text).loaded)), text
    for text in ('<a href="https://example.org">', '<img src="data:image/png;base64,AA">', '<script src="../a.js">'):
        assert not any(map(is_elsewhere, Look(text).loaded)), text


def test_links_and_what_is_loaded_are_there(site: Site) -> None:
    missing = []
    for path, page in site.pages.items():
        if path.name == "404.html":  # its links start at the top, wherever it is shown
            continue
        for url in [*page.links, *page.loaded]:
            if not is_elsewhere(url) and not site.has(url, path):
                missing.append((path.name, url))
    assert missing == []


def test_every_example_is_shown(site: Site) -> None:
    for example in (DOCS / "examples").rglob("*.py"):
        page = site.folder / example.relative_to(DOCS).with_suffix(".html")
        assert page.is_file(), example


def test_links_are_turned_from_where_files_lie_to_pages(hooks: ModuleType) -> None:
    def turned(target: str, source: str) -> str:
        page = hooks.ELSEWHERE.get(source, source.removeprefix("docs/"))
        return str(hooks.site_link(target, source, page))

    assert turned("../LAYOUT.md#locks", "docs/upgrade.md") == "project/layout.md#locks"
    assert turned("docs/security.md#tls", "SECURITY.md") == "../security.md#tls"
    assert turned("../docs/metrics.md", "benchmarks/README.md") == "../metrics.md"
    assert turned("../examples", "docs/client/README.md") == "../examples/README.md"
    assert turned("java_names/batch.py", "docs/examples/README.md") == "java_names/batch.md"
    assert turned("https://example.org/a.md", "docs/README.md") == "https://example.org/a.md"
    assert turned("#here", "docs/README.md") == "#here"
    # Not in the site: it leads out of it, and strict mode says so.
    assert turned("../setup.py", "docs/README.md") == "../setup.py"
    text = "[a](../LAYOUT.md) `[b](../LAYOUT.md)`\n```python\nx = [c](../LAYOUT.md)\n```\n"
    wanted = text.replace("[a](../LAYOUT.md)", "[a](project/layout.md)")
    assert hooks.relinked("| `a \\| b` | [settings.md](settings.md) |", "docs/metrics.md", "metrics.md") == (
        "| `a | b` | [Settings](settings.md) |"
    )
    assert hooks.relinked(text, "docs/README.md", "README.md") == wanted


def written_pages() -> Iterator[Path]:
    yield from sorted(DOCS.rglob("*.md"))
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LAYOUT.md"))
    yield from (ROOT / name for name in ("benchmarks/README.md", "workers/SHARING.md"))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of *page*."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def test_links_lead_somewhere_where_the_pages_lie_in_the_repository() -> None:
    missing = []
    for page in written_pages():
        text = re.sub(r"^```.*?^```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for url in LINK.findall(text):
            parts = urlsplit(url)
            if parts.scheme:
                continue
            target = (page.parent / parts.path).resolve() if parts.path else page
            if not target.exists() or (parts.fragment and parts.fragment not in anchors(target)):
                missing.append(f"{page.relative_to(ROOT)}: {url}")
    assert missing == []


def test_both_renderers_read_lists_and_tables_alike() -> None:
    """GitHub nests a list from two blanks on, Python's Markdown from four; and it ends no paragraph for either."""
    odd = []
    for page in written_pages():
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for before, line in pairwise(text.splitlines()):
            in_paragraph = bool(before.strip()) and not re.match(r"\s|[-*+] |\d+\. |\||#", before)
            if re.match(r" {1,3}([-*+]|\d+\.) ", line) or (in_paragraph and re.match(r"\||([-*+]|\d+\.) ", line)):
                odd.append(f"{page.relative_to(ROOT)}: {line}")
    assert odd == []


def test_no_table_was_taken_for_a_paragraph(site: Site) -> None:
    assert [path.name for path in site.pages if "<p>|" in path.read_text(encoding="utf-8")] == []


def test_the_figures_of_the_comparison_are_those_of_the_benchmarks() -> None:
    benchmarks = set(NUMBER.findall((ROOT / "benchmarks" / "README.md").read_text()))
    page = (DOCS / "comparison.md").read_text()
    cells = [cell for line in page.splitlines() if line.startswith("| ") for cell in line.strip("|").split("|")[1:]]
    figures = {cell.strip() for cell in cells if NUMBER.fullmatch(cell.strip())}
    assert len(figures) > 60
    figures |= {number for number in NUMBER.findall(page) if "." in number or "," in number}
    assert figures - benchmarks == set()
    commands = set(re.findall(r"python -m benchmarks[^`\n]*", page))
    modules = {ROOT / command.split()[2].replace(".", "/") for command in commands}
    assert len(modules) > 5
    assert {
        path for path in modules if not path.with_suffix(".py").is_file() and not (path / "__main__.py").is_file()
    } == set()


def test_the_site_works_from_a_folder_and_asks_nobody(site: Site) -> None:
    if missing := missing_tools():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory() as name, Browser(Path(name)) as browser:
        browser.open_file(site.folder / "concepts.html")
        browser.wait_for("[...document.images].every(image => image.naturalWidth > 0)", "its pictures are there")
        browser.run("document.querySelector('[data-md-component=search-query]').focus()")
        browser.run(
            "(field => { field.value = 'dead letters'; field.dispatchEvent(new KeyboardEvent('keyup')); })"
            "(document.querySelector('[data-md-component=search-query]'))"
        )
        browser.wait_for("document.querySelectorAll('.md-search-result__link').length > 1", "something is found")
        for page in ("index.html", "client/reference.html", "examples/simple_producer.html"):
            browser.open_file(site.folder / page)
        assert [url for url in browser.asked_for if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
        assert len(browser.asked_for) > 10
        assert browser.messages == []
