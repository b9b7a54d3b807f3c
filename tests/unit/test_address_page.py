"""Name servers by a page: which URLs are one, what is read there, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from mqcore.address import is_address_page, page_of, parse_name_servers
from mqcore.client.session.name_servers import NameServers
from mqcore.errors import RemotingConnectError
from mqcore.transport.address_page import AddressPage, addresses_of, page_of_unit, read_page
from mqcore.transport.client import RemotingClient
from tests.rigs.address_page import Page, address_page


@pytest.fixture
def page() -> Iterator[Page]:
    with address_page("10.0.0.1:9876;10.0.0.2:9876\n") as served:
        yield served


@pytest.mark.parametrize(
    ("text", "is_page"),
    [
        ("http://host:8080/rocketmq/nsaddr", True),
        (" https://host/x ", True),
        ("http://host:8080/rocketmq/nsaddr-unit?nofix=1", True),
        ("http://[::1]:8080/rocketmq/nsaddr", True),
        ("http://MQ_INST_1_2.mq.example:80", False),
        ("http://host:8080/", False),
        ("host:8080/rocketmq", False),
        ("http://a/b;http://c/d", False),
    ],
)
def test_a_page_is_a_url_with_a_path(text: str, is_page: bool) -> None:
    assert is_address_page(text) == is_page


def test_a_page_stands_alone_among_name_servers() -> None:
    assert parse_name_servers(" http://host/rocketmq/nsaddr ") == ("http://host/rocketmq/nsaddr",)
    assert parse_name_servers("http://host:1/;http://other") == ("host:1", "other:9876")
    with pytest.raises(ValueError, match="one URL of a page"):
        parse_name_servers("10.0.0.1:9876;http://host/rocketmq/nsaddr")


def test_urls_are_those_that_rocketmq_makes() -> None:
    assert page_of("jmenv.tbsite.net", "nsaddr") == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    assert page_of("[::1]:80", "mine") == "http://[::1]:80/rocketmq/mine"
    assert page_of("[::1]", "mine") == "http://[::1]:8080/rocketmq/mine"
    assert page_of_unit("http://h/rocketmq/nsaddr", "u") == "http://h/rocketmq/nsaddr-u?nofix=1"
    assert page_of_unit("http://h/rocketmq/nsaddr", None) == "http://h/rocketmq/nsaddr"


def test_the_first_line_counts(page: Page) -> None:
    assert read_page(page.url) == ("10.0.0.1:9876", "10.0.0.2:9876")
    page.text = "\r\n 10.0.0.3:1 \r\nand more\r\n"
    assert addresses_of((page.url,)) == ("10.0.0.3:1",)
    assert page.asked == ["/rocketmq/nsaddr"] * 2


def test_addresses_need_no_page() -> None:
    assert addresses_of(("a:1", "b:2")) == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("status", "text", "why"),
    [
        (404, "none", "status 404, wanted 200"),
        (200, "", "got '', wanted host:port;host:port"),
        (200, "<html>", "got '<html>', wanted host:port"),
        (200, "http://other/rocketmq/nsaddr", "wanted host:port"),
    ],
)
def test_a_page_without_addresses_is_told_by_its_url(page: Page, status: int, text: str, why: str) -> None:
    page.status, page.text = status, text
    with pytest.raises(RemotingConnectError, match=why) as caught:
        read_page(page.url)
    assert str(caught.value).startswith(page.url)


def test_a_host_that_is_not_there_is_told_by_its_url() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        url = page_of(f"127.0.0.1:{taken.getsockname()[1]}", "nsaddr")
        with pytest.raises(RemotingConnectError, match=f"^{url}: .*refused"):
            read_page(url)


def test_a_host_that_is_silent_takes_no_more_than_the_time() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        pytest.raises(RemotingConnectError, match="timed out"),
    ):
        read_page(page_of(f"127.0.0.1:{silent.getsockname()[1]}", "nsaddr"), 0.05)


async def test_who_waits_together_reads_once(page: Page) -> None:
    read = AddressPage(page.url)
    assert sorted(await asyncio.gather(read.read(), read.read(), read.read())) == [False, False, True]
    assert len(page.asked) == 1
    assert not await read.read()
    page.text = "10.0.0.9:9876"
    assert await read.read()


async def test_a_page_that_fails_later_changes_nothing_and_one_that_changes_keeps_who_is_chosen(page: Page) -> None:
    remoting = RemotingClient()
    servers = NameServers(remoting, (page.url,), "unit")
    assert servers.addresses == ()
    assert set(await servers.all()) == {"10.0.0.1:9876", "10.0.0.2:9876"}
    chosen = servers.chosen
    page.status = 500
    with pytest.raises(RemotingConnectError):
        await servers.read_page()
    assert servers.chosen == chosen
    page.status, page.text = 200, f"10.0.0.7:1;{chosen};10.0.0.8:1"
    await servers.read_page()
    assert servers.chosen == chosen
    assert len(servers.addresses) == 3
    page.text = "10.0.0.7:1"
    await servers.read_page()
    assert servers.chosen == "10.0.0.7:1"
    assert set(page.asked) == {"/rocketmq/nsaddr-unit?nofix=1"}
    await remoting.close()
