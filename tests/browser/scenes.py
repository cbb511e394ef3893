"""What the browser's tests share: server processes, the model's pace, and the page as a person uses it."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Locator, Page, Playwright, expect

from examples.chat_server.scripted_model import TOUR
from persist import Store
from tests.subprocesses import ROOT, Worker

DEADLINE = 60.0
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ALL = 10**6


def environment() -> dict[str, str]:
    """The environment of a server: followers are notified, as they are outside of tests."""
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "PYTHONPATH": path, "PERSIST_NOTIFY_FOLLOWERS": "true"}


def open_chromium(playwright: Playwright) -> Browser:
    """The system's Chromium. FileNotFoundError names the package that has it."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        raise FileNotFoundError("there is no Chromium; on Debian and Ubuntu install the package chromium")
    return playwright.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])


class Gate:
    """How many words of each answer the model may say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.allow(ALL)

    def allow(self, words: int) -> None:
        """From now on, also in an answer that runs."""
        written = self.path.with_suffix(".new")
        written.write_text(str(words))
        written.replace(self.path)  # never half written


class Server:
    """A process of the chat, on a port of its own."""

    def __init__(self, url: str, gate: Gate) -> None:
        self.url, self.gate = url, gate
        self._port: int | None = 0
        self.start()

    def start(self) -> None:
        """Start it, a second time on the port that it had."""
        line = ("tests.browser.chat_process", self.url, self.gate.path, self._port)
        self._process = Worker(*line, preloaded="tests.browser.preloaded")
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the server ended before it listened"
        self._port = urlsplit(self.address).port

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.close()

    def stop(self) -> None:
        """End it as an operator does."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=DEADLINE)


class Chat:
    """A database, and two servers on it."""

    def __init__(self, url: str, gate: Gate) -> None:
        self.url, self.gate = url, gate
        self.one, self.two = Server(url, gate), Server(url, gate)

    def stored(self, session: str) -> list[dict[str, Any]]:
        """The messages of a session."""
        with Store.open(self.url) as store:
            return store.chat.messages.list(session)

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.one.stop()
        self.two.stop()


class Window:
    """A window of the browser with the chat in it."""

    def __init__(self, page: Page, server: Server, session: str | None = None) -> None:
        self.page = page
        page.goto(server.address + ("" if session is None else f"#{session}"))
        if session is None:
            page.get_by_role("button", name="New chat").click()
            page.wait_for_url("**/#ses_*")
        self.session = page.url.partition("#")[2]

    def ask(self, text: str, image: Path | None = None) -> None:
        """Type a question and send it, as soon as the page lets one be sent."""
        expect(self.button("Send")).to_be_visible()
        if image is not None:
            self.page.get_by_label("Attach an image").set_input_files(image)
        field = self.page.get_by_label("Message")
        field.fill(text)
        field.press("Enter")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def questions(self) -> Locator:
        return self.page.get_by_role("article", name="Question")

    @property
    def answers(self) -> Locator:
        return self.page.get_by_role("article", name="Answer")

    @property
    def said(self) -> Locator:
        """The texts of the latest answer."""
        return self.answers.last.locator(".text")

    def shown(self) -> list[tuple[str, list[str]]]:
        """Each message's id and texts, as they are on the page."""
        script = """articles => articles.map(article =>
            [article.dataset.id, [...article.querySelectorAll(".text")].map(text => text.textContent)])"""
        return [(id, texts) for id, texts in self.page.locator("article").evaluate_all(script)]


def texts_of(messages: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Each stored message's id and texts."""
    return [(message["id"], [part["text"] for part in message["parts"] if part["type"] == "text"]) for message in messages]


def tour(question: str, words: int = ALL) -> str:
    """The first words of what the model says to a question."""
    return " ".join(TOUR.format(question=question).split()[:words])


def eventually(found: Callable[[], Any], expected: Callable[[], Any]) -> None:
    """Both are equal at last."""
    deadline = time.monotonic() + DEADLINE
    while (last := found()) != (wanted := expected()):
        assert time.monotonic() < deadline, f"{last!r} instead of {wanted!r}"
        time.sleep(0.02)
