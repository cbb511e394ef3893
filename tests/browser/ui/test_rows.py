"""Rows that come in while somebody looks: events of the log, and lines of a session log, as text in which nothing runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from persist import Store
from tests.browser.ui.watching import Watched

Looking = Callable[..., Watched]
HOSTILE = "<img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"


def noted(store: Store, kind: str, data: Any = None, actor: str | None = None) -> None:
    with store.begin(actor=actor) as tx:
        tx.events.append("audit", kind, data)


def test_events_are_shown_as_they_come_the_newest_first(database_url: str, looking: Looking) -> None:
    with Store.open(database_url, events=True) as store:
        noted(store, "door.built")
        window, filtered = looking(database_url), looking(database_url)
        window.go("/events")
        filtered.go("/events?type=door.sh*")
        noted(store, "door.opened", {"why": HOSTILE}, actor=HOSTILE)
        noted(store, "door.shut")
        rows = window.page.locator("tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("door.shut")
        expect(rows.nth(1)).to_contain_text("window.hacked")
        expect(filtered.page.locator("tbody tr")).to_have_count(1)
        rows.nth(0).get_by_role("link", name="audit").click()
        expect(rows.nth(0)).to_contain_text("door.built")
        noted(store, "door.painted")
        expect(rows.nth(3)).to_contain_text("door.painted")
        expect(rows).to_have_count(4)
        assert not window.page.evaluate("() => 'hacked' in window")
        assert (window.wrong, filtered.wrong) == ([], [])


def test_a_page_that_was_loaded_again_misses_no_event_and_shows_none_twice(database_url: str, looking: Looking) -> None:
    with Store.open(database_url, events=True) as store:
        window = looking(database_url)
        window.go("/events?stream=audit")
        for number in range(30):
            noted(store, f"step.{number}")
            if number % 10 == 5:
                window.page.reload()
        expect(window.page.locator("tbody tr")).to_have_count(30)
        assert window.page.locator("tbody b").all_inner_texts() == [f"step.{number}" for number in range(30)]
        assert window.wrong == []


def test_a_session_log_is_followed(database_url: str, looking: Looking, tmp_path: Path) -> None:
    Store.open(database_url).close()
    log = tmp_path / "projects" / "-work" / "s1.jsonl"
    log.parent.mkdir(parents=True)

    def say(text: str) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n")

    say("It begins.")
    window = looking(database_url, logs=tmp_path)
    window.go("/logs")
    window.page.get_by_role("link", name="s1").click()
    said = window.page.locator(".log article")
    expect(said).to_have_count(1)
    say("**More** " + HOSTILE)
    expect(said).to_have_count(2)
    expect(said.nth(1).locator("strong")).to_have_text("More")
    with log.open("a") as file:
        file.write('{"type": "user", "message": {"content": "half a')
        file.flush()
        file.write(' line"}}\n')
    expect(said.nth(2)).to_contain_text("half a line")
    assert not window.page.evaluate("() => 'hacked' in window")
    assert window.wrong == []


def test_without_a_script_the_pages_show_what_there_is(database_url: str, looking: Looking) -> None:
    with Store.open(database_url, events=True) as store:
        for number in range(60):
            noted(store, f"step.{number}")
        window = looking(database_url, java_script_enabled=False)
        window.page.goto(f"{window.address}/events")
        window.page.get_by_role("link", name="older").click()
        expect(window.page.locator("tbody tr")).to_have_count(10)
        window.page.get_by_role("link", name="newest").click()
        expect(window.page.locator("tbody tr").first).to_contain_text("step.59")
