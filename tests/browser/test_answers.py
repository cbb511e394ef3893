"""An answer in a browser: it streams, goes on after a reload and in a second window, stops and fails."""

import base64
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.scenes import ALL, Chat, Window, eventually, texts_of, tour

Open = Callable[..., Window]

pytestmark = pytest.mark.one_database


def test_an_answer_streams(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    chat.gate.allow(4)
    one.ask("hello")
    expect(one.said).to_have_text(tour("hello", 4))
    expect(one.button("Stop")).to_be_visible()
    chat.gate.allow(ALL)
    expect(one.said).to_have_text(tour("hello"))
    expect(one.button("Send")).to_be_visible()
    eventually(one.shown, lambda: texts_of(chat.stored(one.session)))


def test_a_reload_in_the_middle_goes_on_to_the_same_text(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    chat.gate.allow(6)
    one.ask("hello")
    expect(one.said).to_have_text(tour("hello", 6))
    one.page.reload()
    expect(one.button("Stop")).to_be_visible()
    expect(one.said).to_have_text(tour("hello", 6))
    chat.gate.allow(9)
    expect(one.said).to_have_text(tour("hello", 9))
    chat.gate.allow(ALL)
    expect(one.said).to_have_text(tour("hello"))
    expect(one.button("Send")).to_be_visible()
    eventually(one.shown, lambda: texts_of(chat.stored(one.session)))
    one.page.reload()
    expect(one.said).to_have_text(tour("hello"))
    expect(one.answers).to_have_count(1)


def test_another_process_shows_the_answer_and_stops_it(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    chat.gate.allow(6)
    one.ask("hello")
    expect(one.said).to_have_text(tour("hello", 6))
    two = window(chat.two, one.session)
    expect(two.said).to_have_text(tour("hello", 6))
    chat.gate.allow(9)
    for each in (one, two):
        expect(each.said).to_have_text(tour("hello", 9))
    two.button("Stop").click()
    for each in (one, two):
        expect(each.button("Send")).to_be_visible()
        expect(each.said).to_have_text(tour("hello", 9))
        eventually(each.shown, lambda: texts_of(chat.stored(one.session)))
    chat.gate.allow(ALL)
    two.ask("go on")
    expect(two.said).to_have_text(tour("go on"))


def test_an_answer_that_fails_says_so_and_the_next_question_works(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    one.ask("please fail")
    expect(one.page.get_by_role("alert")).to_be_visible()
    one.ask("hello")
    expect(one.said).to_have_text(tour("hello"))
    expect(one.page.get_by_role("alert")).to_have_count(0)


# Calls of tools that wait for a person: an approval, given and refused, and a choice that the browser returns.


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize(
    ("answer", "state", "comment"),
    [
        ("Approve", "output-available", "An email about the meeting is on its way to ada@example.org."),
        ("Deny", "output-denied", "All right, I do not send it."),
    ],
)
def test_a_tool_waits_for_its_approval(chat: Chat, window: Open, answer: str, state: str, comment: str, reloaded: bool) -> None:
    one = window(chat.one)
    one.ask("write an email")
    expect(one.button(answer)).to_be_visible()
    expect(one.button("Send")).to_be_visible()
    if reloaded:
        one = window(chat.two, one.session)
    one.button(answer).click()
    expect(one.said).to_have_text(comment)
    expect(one.button("Send")).to_be_visible()
    expect(one.button(answer)).to_have_count(0)
    expect(one.answers).to_have_count(1)
    eventually(one.shown, lambda: texts_of(chat.stored(one.session)))
    (call,) = (part for part in chat.stored(one.session)[1]["parts"] if part["type"] == "tool-send_email")
    assert (call["state"], call["approval"]["approved"]) == (state, answer == "Approve")
    one.page.reload()
    expect(one.said).to_have_text(comment)
    expect(one.page.get_by_label("send_email")).to_have_attribute("data-state", state)


def test_the_browser_returns_a_choice(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    one.ask("let me choose")
    expect(one.button("Green")).to_be_visible()
    one.page.reload()
    one.button("Green").click()
    expect(one.said).to_have_text("You chose Green.")
    expect(one.button("Send")).to_be_visible()
    eventually(one.shown, lambda: texts_of(chat.stored(one.session)))


def test_a_conversation_goes_on_without_an_approval(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    one.ask("write an email")
    expect(one.button("Approve")).to_be_visible()
    one.ask("hello")
    expect(one.said).to_have_text(tour("hello"))
    expect(one.button("Send")).to_be_visible()
    expect(one.button("Approve")).to_have_count(0)
    eventually(one.shown, lambda: texts_of(chat.stored(one.session)))


# What a person does to a conversation: edit a question, ask again, fork, change between sessions, attach a file.


def test_an_edited_question_is_answered_anew(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    for question in ("first", "second"):
        one.ask(question)
        expect(one.said).to_have_text(tour(question))
        expect(one.button("Send")).to_be_visible()
    first = chat.stored(one.session)[0]["id"]
    one.questions.first.get_by_role("button", name="Edit").click()
    one.page.get_by_label("Edited question").fill("better")
    one.button("Ask again").click()
    expect(one.said).to_have_text(tour("better"))
    expect(one.questions).to_have_count(1)
    expect(one.button("Send")).to_be_visible()
    eventually(one.shown, lambda: texts_of(chat.stored(one.session)))
    assert chat.stored(one.session)[0]["id"] == first
    one.page.reload()
    expect(one.questions.locator(".text")).to_have_text(["better"])
    expect(one.said).to_have_text(tour("better"))


def test_an_answer_is_regenerated(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    one.ask("hello")
    expect(one.button("Send")).to_be_visible()
    expect(one.said).to_have_text(tour("hello"))
    question, former = (message["id"] for message in chat.stored(one.session))
    one.button("Regenerate").click()
    expect(one.page.locator(f"article[data-id='{former}']")).to_have_count(0)
    expect(one.said).to_have_text(tour("hello"))
    expect(one.button("Send")).to_be_visible()
    eventually(one.shown, lambda: texts_of(chat.stored(one.session)))
    assert [message["id"] for message in chat.stored(one.session)][:1] == [question]
    assert len(chat.stored(one.session)) == 2


def test_a_fork_goes_its_own_way(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    one.ask("first")
    expect(one.said).to_have_text(tour("first"))
    one.answers.first.get_by_role("button", name="Fork").click()
    one.page.wait_for_url(lambda url: one.session not in url)
    fork = one.page.url.partition("#")[2]
    expect(one.page.locator(f"nav a[aria-current][href='#{fork}']")).to_be_visible()
    expect(one.said).to_have_text(tour("first"))
    one.ask("second")
    expect(one.said).to_have_text(tour("second"))
    expect(one.button("Send")).to_be_visible()
    eventually(one.shown, lambda: texts_of(chat.stored(fork)))
    assert len(chat.stored(fork)) == 4
    assert len(chat.stored(one.session)) == 2


def test_a_person_has_sessions_of_their_own_with_titles(chat: Chat, window: Open) -> None:
    one = window(chat.one)
    for question in ("apples", "pears"):
        one.ask(question)
        expect(one.said).to_have_text(tour(question))
        expect(one.button("Send")).to_be_visible()
        if question == "apples":
            one.button("New chat").click()
            expect(one.answers).to_have_count(0)
    listed = one.page.get_by_role("navigation").get_by_role("link")
    expect(listed).to_have_text(["pears", "apples"])
    listed.get_by_text("apples").click()
    expect(one.said).to_have_text(tour("apples"))
    two = window(chat.two, one.session)
    expect(two.page.get_by_role("navigation").get_by_role("link")).to_have_text(["pears", "apples"])


def png(side: int) -> bytes:
    """A picture that cannot be compressed."""
    noise = random.Random(7)
    rows = b"".join(b"\0" + noise.randbytes(side * 3) for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_an_attached_image_is_stored_and_shown_again(chat: Chat, window: Open, tmp_path: Path) -> None:
    image = tmp_path / "noise.png"
    image.write_bytes(png(200))
    assert image.stat().st_size > 2**16
    one = window(chat.one)
    one.ask("what is this?", image)
    expect(one.said).to_have_text(f"I see a file of type image/png with {image.stat().st_size} bytes.")
    two = window(chat.two, one.session)
    expect(two.page.get_by_alt_text("noise.png")).to_be_visible()
    expect(two.page.get_by_alt_text("noise.png")).to_have_js_property("naturalWidth", 200)
    assert file_of(chat, one.session) == image.read_bytes()

    # the edited question of the second window names the file, whose bytes it does not have
    two.questions.first.get_by_role("button", name="Edit").click()
    two.page.get_by_label("Edited question").fill("and this?")
    two.button("Ask again").click()
    expect(two.questions.locator(".text")).to_have_text(["and this?"])
    expect(two.said).to_have_text(f"I see a file of type image/png with {image.stat().st_size} bytes.")
    expect(two.button("Send")).to_be_visible()
    eventually(two.shown, lambda: texts_of(chat.stored(one.session)))
    assert file_of(chat, one.session) == image.read_bytes()


def file_of(chat: Chat, session: str) -> bytes:
    """The file of the first question."""
    (file,) = (part for part in chat.stored(session)[0]["parts"] if part["type"] == "file")
    return base64.b64decode(file["url"].partition(",")[2])
