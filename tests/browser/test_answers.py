"""An answer in a browser: it streams, goes on after a reload and in a second window, stops and fails."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.scenes import ALL, Chat, Window, eventually, texts_of, tour

Open = Callable[..., Window]


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
