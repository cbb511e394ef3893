"""A chat in the browser while another process writes the answer, is killed, and one more goes on: word by word, nothing twice."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Locator, expect

from persist import Store
from tests.browser.ui.watching import Watched
from tests.cli.test_processes import PERSIST, environment_of

Looking = Callable[..., Watched]
MESSAGE = "msg_live"


class Writer:
    """A process that records what it is told, chunk by chunk."""

    def __init__(self, url: str, session: str, *options: str) -> None:
        command = [*PERSIST, "record", "--url", url, "--session", session, "-q", *options]
        environment = {**environment_of(url), "PERSIST_NOTIFY_FOLLOWERS": "true"}  # which other tests do without
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def feed(self, *chunks: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(json.dumps(chunk).encode() + b"\n" for chunk in chunks))
        self._process.stdin.flush()

    def say(self, words: str) -> None:
        self.feed({"type": "text-delta", "id": "t", "delta": words})

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@contextmanager
def writing(url: str, session: str, *options: str) -> Iterator[Writer]:
    writer = Writer(url, session, *options)
    try:
        yield writer
    finally:
        if writer._process.poll() is None:
            writer.kill()
        assert writer._process.stdin is not None
        writer._process.stdin.close()


def made(url: str) -> str:
    with Store.open(url) as store:
        session = store.chat.sessions.create(agent="build", model={}).id
        store.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "Go on."}])
        return session


def said(window: Watched) -> Locator:
    return window.page.locator("article.from-assistant")


def test_word_by_word_from_a_process_that_is_killed_and_another_that_goes_on(database_url: str, looking: Looking) -> None:
    session = made(database_url)
    window = looking(database_url)
    window.go(f"/chat/{session}")
    expect(window.page.get_by_text("Go on.")).to_be_visible()
    start = ({"type": "start", "messageId": MESSAGE}, {"type": "start-step"}, {"type": "text-start", "id": "t"})
    with writing(database_url, session) as writer:
        writer.feed(*start)
        for words in ("One ", "two <b>", "three"):
            writer.say(words)
            expect(said(window)).to_contain_text(words.strip())
        expect(said(window)).to_have_count(1)
        writer.kill()
    with writing(database_url, session, "--takeover") as writer:
        writer.feed(*start)
        for words in ("four ", "**five**"):
            writer.say(words)
            expect(said(window)).to_contain_text(words.strip("* "))
        writer.feed({"type": "text-end", "id": "t"}, {"type": "finish-step"}, {"type": "finish"})
        writer.close()
    expect(said(window).locator("strong")).to_have_text("five")  # it is over, and shown as Markdown
    text = said(window).inner_text()
    assert [text.count(word) for word in ("One", "two", "three", "four", "five")] == [1] * 5, text
    prose = said(window).locator(".prose")
    before = prose.all_inner_texts()
    window.page.reload()
    assert prose.all_inner_texts() == before
    assert window.wrong == []


def test_a_tool_call_and_reasoning_show_as_they_come(database_url: str, looking: Looking) -> None:
    session = made(database_url)
    window = looking(database_url)
    window.go(f"/chat/{session}")
    with writing(database_url, session) as writer:
        writer.feed({"type": "start", "messageId": MESSAGE}, {"type": "start-step"}, {"type": "reasoning-start", "id": "r"})
        writer.feed({"type": "reasoning-delta", "id": "r", "delta": "Look first."})
        expect(said(window)).to_contain_text("Look first.")
        writer.feed(
            {"type": "reasoning-end", "id": "r"},
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "read", "input": {"path": "a.py"}},
        )
        expect(said(window)).to_contain_text("input-available")
        writer.feed({"type": "tool-output-available", "toolCallId": "c", "output": "12 lines"})
        expect(said(window)).to_contain_text("output-available")
        writer.feed({"type": "finish-step"}, {"type": "finish"})
        writer.close()
    assert window.wrong == []


def test_a_second_answer_comes_to_a_page_that_stays_open(database_url: str, looking: Looking) -> None:
    session = made(database_url)
    window = looking(database_url)
    window.go(f"/chat/{session}")
    for number in range(2):
        with writing(database_url, session) as writer:
            writer.feed({"type": "start"}, {"type": "start-step"}, {"type": "text-start", "id": "t"})
            writer.say(f"answer {number}")
            expect(said(window)).to_have_count(number + 1)
            expect(said(window).nth(number)).to_contain_text(f"answer {number}")
            writer.feed({"type": "text-end", "id": "t"}, {"type": "finish-step"}, {"type": "finish"})
            writer.close()
    assert window.wrong == []
