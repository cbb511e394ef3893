"""A server that dies in the middle of an answer, or is told to end."""

from collections.abc import Callable

from playwright.sync_api import expect

from persist import Store
from tests.browser.scenes import ALL, Server, Window, eventually, texts_of, tour

Open = Callable[..., Window]


def test_what_was_read_is_there_after_kill_9_and_the_chat_goes_on(own_server: Server, window: Open) -> None:
    one = window(own_server)
    own_server.gate.allow(8)
    one.ask("hello")
    expect(one.said).to_have_text(tour("hello", 8))
    own_server.kill()
    expect(one.page.get_by_role("alert")).to_be_visible()
    own_server.gate.allow(ALL)
    own_server.start()
    one.page.reload()
    expect(one.said).to_have_text(tour("hello", 8))
    expect(one.page.get_by_text("This answer was cut off.")).to_be_visible()
    with Store.open(own_server.url) as store:
        stored = store.chat.messages.list(one.session)
        assert one.shown() == texts_of(stored)
    one.ask("and now?")
    expect(one.said).to_have_text(tour("and now?"))
    one.page.reload()
    expect(one.answers).to_have_count(2)
    one.answers.last.get_by_role("button", name="Regenerate").click()
    expect(one.said).to_have_text(tour("and now?"))


def test_a_question_whose_answer_never_began_can_be_tried_again(own_server: Server, window: Open) -> None:
    one = window(own_server)
    own_server.gate.allow(0)
    one.ask("hello")
    expect(one.button("Stop")).to_be_visible()
    with Store.open(own_server.url) as store:
        eventually(lambda: store.chat.sessions.turn(one.session) is not None, lambda: True)
    own_server.kill()
    own_server.gate.allow(ALL)
    own_server.start()
    one.page.reload()
    one.button("Try again").click()
    expect(one.said).to_have_text(tour("hello"))
    expect(one.questions).to_have_count(1)


def test_an_answer_is_cut_off_when_an_operator_ends_the_server(own_server: Server, window: Open) -> None:
    one = window(own_server)
    own_server.gate.allow(8)
    one.ask("hello")
    expect(one.said).to_have_text(tour("hello", 8))
    own_server.stop()
    with Store.open(own_server.url) as store:
        assert store.chat.sessions.turn(one.session) is None
        stored = store.chat.messages.list(one.session)
        assert one.shown() == texts_of(stored)
    own_server.gate.allow(ALL)
    own_server.start()
    one.page.reload()
    expect(one.said).to_have_text(tour("hello", 8))
    one.button("Regenerate").click()
    expect(one.said).to_have_text(tour("hello"))
