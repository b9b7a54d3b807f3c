"""A page that names name servers, as RocketMQ's clients read it by HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page:
    """What the page says, and the paths that it was asked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.status = 200
        self.asked: list[str] = []
        self.host = ""

    @property
    def url(self) -> str:
        return f"http://{self.host}/rocketmq/nsaddr"


@contextmanager
def address_page(text: str) -> Iterator[Page]:
    """Serve a page that says *text* on a free port of 127.0.0.1."""
    page = Page(text)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.asked.append(self.path)
            body = page.text.encode()
            self.send_response(page.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        page.host = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield page
        finally:
            server.shutdown()
            thread.join()
