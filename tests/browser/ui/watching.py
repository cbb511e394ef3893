"""The pages of a store in Chromium, and a log of everything that a page must not do."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import BrowserContext, Page

from persist import Store
from persist.ui.serving import Server
from persist.ui.stores import OneStore
from persist.ui.views import Site


@contextmanager
def served(url: str, *, allow_changes: bool = False, logs: Path | None = None) -> Iterator[str]:
    """The address of the pages, which a thread of this process serves."""
    opening = partial(Store.open, url, read_only=not allow_changes, migrate=False)
    server = Server(OneStore(opening, Site("state", allow_changes, logs)), "127.0.0.1", 0, None)
    thread = threading.Thread(target=server.serve_until_stopped, name="pages")
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield server.address.rstrip("/")
    finally:
        server.should_exit = True
        thread.join(30)


class Watched:
    """A window that notes what its pages fetch, say and try."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("dialog", self._dialog)
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("popup", lambda popup: self.wrong.append(f"popup: {popup.url}"))

    def go(self, path: str) -> int:
        """Open an address of the application; the status of the answer."""
        answer = self.page.goto(self.address + path, wait_until="load")
        assert answer is not None
        if self.page.evaluate("() => 'hacked' in window"):
            self.wrong.append(f"{path}: a script ran")
        return answer.status

    def links(self) -> list[str]:
        """The addresses of the application that the page leads to."""
        found = self.page.evaluate("() => [...document.querySelectorAll('main a[href], nav a[href]')].map(a => a.href)")
        own = [link.removeprefix(self.address) for link in found if link.startswith(f"{self.address}/")]
        return [link.partition("#")[0] for link in own if "/raw" not in link and "download" not in link]

    def _asked(self, url: str) -> None:
        if not url.startswith(self.address):
            self.wrong.append(f"asked {url} from {self.page.url}")

    def _dialog(self, dialog: object) -> None:
        self.wrong.append(f"dialog on {self.page.url}")
        dialog.dismiss()  # type: ignore[attr-defined]  # a Dialog of playwright

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and "404" not in text and "422" not in text:
            self.wrong.append(f"{self.page.url}: {text}")


def kind_of(path: str) -> str:
    """Pages of one kind differ by an id or a query: /runs/x and /runs/y are one kind, /runs and /runs?after=… another."""
    parts = unquote(urlsplit(path).path).strip("/").split("/")
    keep = 2 if parts[0] == "frameworks" else 1
    return "/".join([*parts[:keep], *("{}" for _ in parts[keep:])]) + ("?" if "?" in path else "")


def crawled(watched: Watched, of_a_kind: int = 2, most: int = 120) -> Iterator[tuple[str, int]]:
    """The pages that are reached from the overview, so many of each kind, with their statuses."""
    seen, ahead, counts = {"/"}, ["/"], dict[str, int]()
    while ahead and most:
        path = ahead.pop(0)
        if counts.get(kind_of(path), 0) >= of_a_kind:
            continue
        counts[kind_of(path)] = counts.get(kind_of(path), 0) + 1
        most -= 1
        status = watched.go(path)
        yield path, status
        for link in watched.links():
            if link not in seen and not re.search(r"format=json|\.(md|json)(\?|$)", link):
                seen.add(link)
                ahead.append(link)
