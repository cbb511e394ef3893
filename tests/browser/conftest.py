"""Fixtures: a real Chromium, the chat on both databases with two servers each, and windows of a person of the test's own."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from examples.chat_server.server import PAGE
from tests.browser.scenes import ALL, DEADLINE, Chat, Gate, Server, Window, open_chromium
from tests.database_pool import Databases

expect.set_options(timeout=DEADLINE * 1000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        try:
            browser = open_chromium(playwright)
        except FileNotFoundError as reason:
            pytest.fail(str(reason), pytrace=False)
        with browser:
            yield browser


@pytest.fixture(scope="session")
def built() -> None:
    """`make chat` and `make test-browser` bundle the page, for which they need Node."""
    if not (PAGE / "dist" / "page.js").exists():
        pytest.fail("the page is not built; make test-browser does it", pytrace=False)


@pytest.fixture(scope="session")
def sqlite_chat(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    folder = tmp_path_factory.mktemp("sqlite")
    with Chat(f"sqlite:///{(folder / 'chat.db').as_posix()}", Gate(folder / "gate")) as chat:
        yield chat


@pytest.fixture(scope="session")
def postgres_chat(built: None, tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[Chat]:
    url = databases.create()
    try:
        with Chat(url, Gate(tmp_path_factory.mktemp("postgres") / "gate")) as chat:
            yield chat
    finally:
        databases.drop(url)


@pytest.fixture
def chat(request: pytest.FixtureRequest, backend: str) -> Chat:
    """The chat on a database; its servers start once."""
    chat: Chat = request.getfixturevalue(f"{backend}_chat")
    chat.gate.allow(ALL)
    return chat


@pytest.fixture
def own_server(built: None, database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill, on a database of its own."""
    server = Server(database_url, Gate(tmp_path / "gate"))
    yield server
    server.stop()


@pytest.fixture
def person() -> str:
    """Who uses the windows of the test."""
    return f"person-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def context(browser: Browser, person: str) -> Iterator[BrowserContext]:
    with browser.new_context(extra_http_headers={"x-forwarded-user": person}) as context:
        context.set_default_timeout(DEADLINE * 1000)
        yield context


@pytest.fixture
def window(context: BrowserContext) -> Callable[..., Window]:
    """`window(server, session)` opens one; without a session a new chat is in it."""
    return lambda server, session=None: Window(context.new_page(), server, session)
