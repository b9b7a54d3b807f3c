"""What the site has besides the pages of docs: pages that lie elsewhere in the repository, and the examples.

Links are written for the repository, where they lead from file to file; here they are turned to the pages of the site,
so that the same text is read in both places. What a page links to and the site has not is a warning, which --strict
refuses.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.livereload import LiveReloadServer
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = "docs/"
ELSEWHERE: Final = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "LAYOUT.md": "project/layout.md",
    "SECURITY.md": "project/security-policy.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "tests/sim/README.md": "project/sim.md",
    "workers/SHARING.md": "project/sharing.md",
}
"""Pages that lie elsewhere in the repository: where there, and where in the site."""

EXAMPLES: Final = "docs/examples"
CODE: Final = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[ ]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(?:\[(?P<name>[\w./-]+\.md))?\]\((?P<target>[^)\s]+)\)")
CELL: Final = re.compile(r"<td.*?</td>", re.DOTALL)
CODE_IN_CELL: Final = re.compile(r"(?<=<code>)[^<]+")
BREAK: Final = re.compile(r"(?<=[_./,;:=|])(?=\w)|(?<=[a-z])(?=[A-Z])")
TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not made of a file in docs."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for example in sorted((ROOT / EXAMPLES).rglob("*.py")):
        made = example_page(example)
        files.append(File.generated(config, site_path(example.relative_to(ROOT).as_posix()), content=made))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of *page* to where their targets are in the site."""
    return relinked(markdown, repository_path(page.file.src_uri), page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let long names in tables break between their words, so that a table is no wider than the page."""
    return CELL.sub(lambda cell: CODE_IN_CELL.sub(lambda code: BREAK.sub("<wbr>", code[0]), cell[0]), html)


def on_serve(server: LiveReloadServer, **_: object) -> None:
    """Look at the pages that lie elsewhere, too, whether they change."""
    for source in ELSEWHERE:
        server.watch(str(ROOT / source))


def relinked(markdown: str, source: str, page: str) -> str:
    """Return the text of the file *source* of the repository with its links as *page* of the site needs them.

    A link that has a file's name is given the title of its page.
    """

    def turned(match: re.Match[str]) -> str:
        link = f"]({site_link(match['target'], source, page)})"
        return f"[{title_of(match['target'], source, match['name'])}{link}" if match["name"] else link

    parts, end = [], 0
    for code in CODE.finditer(markdown):  # what looks like a link in code is none
        parts += [LINK.sub(turned, markdown[end : code.start()]), unescaped(code[0])]
        end = code.end()
    return "".join([*parts, LINK.sub(turned, markdown[end:])])


def site_link(target: str, source: str, page: str) -> str:
    """Return what *target*, a link in the file *source* of the repository, is in *page* of the site."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or not parts.path:
        return target
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), parts.path))
    if (ROOT / path).is_dir():
        path = posixpath.join(path, "README.md")
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return posixpath.relpath(site_path(path), posixpath.dirname(page) or ".") + fragment


def unescaped(code: str) -> str:
    """Return *code* of a table without what GitHub wants before a bar in it, and Python's Markdown would show."""
    return code if "\n" in code else code.replace("\\|", "|")


def title_of(target: str, source: str, name: str) -> str:
    """Return the title of the page *target*, a link in the file *source*, or *name* if there is none."""
    path = ROOT / posixpath.dirname(source) / urlsplit(target).path
    found = TITLE.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return found[1] if found else name


def site_path(path: str) -> str:
    """Return where in the site the file *path* of the repository is; what is not there goes where nothing is."""
    if path.startswith(f"{EXAMPLES}/") and path.endswith(".py"):
        path = path.removesuffix(".py") + ".md"
    return ELSEWHERE.get(path) or (path.removeprefix(DOCS) if path.startswith(DOCS) else posixpath.join("..", path))


def repository_path(page: str) -> str:
    """Return which file of the repository *page* is made of."""
    sources = {page: source for source, page in ELSEWHERE.items()}
    return sources.get(page, DOCS + page)


def example_page(path: Path) -> str:
    """Return the page of an example: what its docstring says, and its text."""
    text = path.read_text(encoding="utf-8")
    told = ast.get_docstring(ast.parse(text)) or ""
    title = path.stem.replace("_", " ").capitalize().replace(" sql", " SQL")
    where = path.relative_to(ROOT).as_posix()
    return f'# {title}\n\n{told}\n\n```python title="{where}"\n{text}```\n'
