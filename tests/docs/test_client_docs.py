"""The guide to the client: every block of Python in it runs, against a real broker, and prints what it says."""

from __future__ import annotations

import ast
import builtins
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_runner import Block, blocks, remarks, run, topics

from mqcore.client.settings.configuration import SECTIONS
from mqcore.client.settings.page import PAGE
from mqcore.testing import RunningBroker, running_broker
from tests.rigs import maven, wire
from tests.rigs.apache import ApacheServer

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "client"
PAGES = sorted(DOCS.glob("*.md"))
START = DOCS.parent / "README.md"
APACHES = [page for page in PAGES if "apache" in remarks(page).get("broker", [])]
"""Those that are looked at with Apache's broker as well."""

ASKS_SOON = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    queues_of = {name: queues for page in [START, *PAGES] for name, queues in topics(page).items()}
    with running_broker(topics=queues_of, settings=ASKS_SOON) as broker:
        yield broker


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    if missing := maven.missing_tools():
        pytest.skip(missing)
    # It asks again until it has heard the answer, and delivers once for each: an answer has five seconds to arrive.
    properties = {"enablePropertyFilter": "true"} | ASKS_SOON | {"transactionCheckInterval": "5000"}
    with ApacheServer("4.9.8", tmp_path_factory.mktemp("docs") / "store", properties) as server:
        for page in APACHES:
            for name, queues in topics(page).items():
                wire.create_topic(server.broker_address, name, queues=queues)
        yield server


@pytest.mark.parametrize("page", [START, *PAGES], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_the_page_does_what_it_says(
    broker: RunningBroker, page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    logging.getLogger("mqcore").setLevel(logging.ERROR)
    try:
        run(page, broker.name_server)
    finally:
        logging.getLogger("mqcore").setLevel(logging.NOTSET)


@pytest.mark.parametrize("block", blocks(DOCS / "getting-started.md"), ids=lambda block: f"line {block.line}")
def test_each_block_of_the_first_page_can_be_pasted_alone(block: Block) -> None:
    names = [node for node in ast.walk(ast.parse(block.source)) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)} | set(dir(builtins))
    for node in ast.walk(ast.parse(block.source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            bound.update([node.name, *(argument.arg for argument in node.args.args)])
    assert {node.id for node in names} - bound == set()


@pytest.mark.slow
@pytest.mark.parametrize("page", APACHES, ids=lambda page: page.stem)
def test_the_page_does_what_it_says_with_apaches_broker(apache: ApacheServer, page: Path) -> None:
    run(page, apache.name_server)


def test_no_topic_is_used_by_two_pages() -> None:
    counts = Counter(name for page in [START, *PAGES] for name in topics(page))
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.name != "README.md" and f"({page.name})" not in contents] == []


@pytest.mark.parametrize("module", ["mqcore.client.settings.page", "mqcore.client.reference_page"])
def test_a_generated_page_is_what_would_be_written(module: str) -> None:
    # The signatures there are those of the extensions.
    variables = {name: value for name, value in os.environ.items() if name != "MQ_PURE"}
    done = subprocess.run([sys.executable, "-m", module, "--check"], cwd=ROOT, env=variables)
    assert done.returncode == 0


def test_every_setting_has_a_sentence() -> None:
    from dataclasses import fields

    empty = [
        f"{cls.__name__}.{row.name}"
        for cls in SECTIONS.values()
        for row in fields(cls)  # type: ignore[arg-type]
        if not row.metadata.get("doc")
    ]
    assert empty == []
    assert PAGE.is_file()
