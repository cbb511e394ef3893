"""Calls of tools that wait for a person: an approval, given and refused, and a choice that the browser returns."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.scenes import Chat, Window, eventually, texts_of, tour

Open = Callable[..., Window]


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
