"""People who answer in the browser: one wins, the other is told; where changes are off nobody answers; places are kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import expect

from persist import Store
from tests.browser.ui.watching import Watched

Looking = Callable[..., Watched]


@contextmanager
def waiting(url: str, kind: Literal["approve", "reply"] = "approve") -> Iterator[tuple[Store, str, str]]:
    """A store with a run that waits at a gate: the run's id, and the gate's."""
    with Store.open(url) as store:
        with store.begin() as tx:
            run = tx.workflows.runs.create("release", trigger_id="tag/1", current_phase="plan")
            gate = tx.workflows.approvals.pause_for_approval(
                run.id, gate="deploy", summary="Deploy version 2.14?", marker=("deploy", None), kind=kind
            )
        yield store, run.id, gate.id


def test_one_of_two_answers_and_the_other_is_told(database_url: str, looking: Looking) -> None:
    with waiting(database_url) as (store, run, gate):
        first, second = looking(database_url, allow_changes=True), looking(database_url, allow_changes=True)
        for window in (first, second):
            window.go("/approvals")
            expect(window.page.get_by_text("Deploy version 2.14?")).to_be_visible()
        first.page.get_by_role("button", name="Approve").click()
        expect(first.page.get_by_role("status")).to_contain_text("Approved deploy")
        second.page.get_by_role("button", name="Reject").click()
        expect(second.page.get_by_role("heading", level=1)).to_have_text("Not done")
        expect(second.page.locator("main")).to_contain_text("not pending")
        assert (store.workflows.approvals.get(gate).status, store.workflows.runs.get(run).status) == ("approved", "running")
        assert first.wrong == []


def test_a_reply_is_what_was_written_to_the_last_character(database_url: str, looking: Looking) -> None:
    with waiting(database_url, "reply") as (store, run, gate):
        window = looking(database_url, allow_changes=True)
        window.go(f"/runs/{run}")
        words = "Yes: <b>now</b> & “later” 🙂\n100 %"
        window.page.locator("textarea[name=reply]").fill(words)
        window.page.get_by_role("button", name="Reply").click()
        expect(window.page.get_by_role("status")).to_be_visible()
        assert (store.workflows.approvals.get(gate).response or "").replace("\r\n", "\n") == words
        assert window.wrong == []


def test_without_changes_there_is_nothing_to_press(database_url: str, looking: Looking) -> None:
    with waiting(database_url) as (_, run, _):
        window = looking(database_url)
        for path in ("/", "/approvals", f"/runs/{run}", "/queue"):
            window.go(path)
            assert window.page.locator("form[method=post]").count() == 0, path


def test_a_question_comes_before_what_cannot_be_undone(database_url: str, looking: Looking) -> None:
    with waiting(database_url) as (store, run, _):
        window = looking(database_url, allow_changes=True)
        window.go(f"/runs/{run}")
        window.page.get_by_role("button", name="Cancel").first.click()  # the question is dismissed
        assert store.workflows.runs.get(run).status == "paused"
        assert [one for one in window.wrong if not one.startswith("dialog")] == []


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_back_and_reload_keep_the_place(database_url: str, looking: Looking, script: bool) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        for number in range(120):
            tx.workflows.runs.create("many", trigger_id=f"t/{number}", current_phase="plan")
        tx.workflows.runs.create("other", trigger_id="t", current_phase="plan", status="queued")
    window = looking(database_url, java_script_enabled=script)
    window.page.goto(f"{window.address}/runs?status=running")
    window.page.get_by_role("link", name="next page").click()
    window.page.wait_for_url("**after=**")
    second = window.page.url
    assert "status=running" in second
    rows = window.page.locator("tbody tr").count()
    window.page.locator("tbody a").nth(5).click()
    expect(window.page.get_by_role("heading", level=1)).to_have_text("many")
    window.page.go_back()
    assert window.page.url == second
    window.page.reload()
    assert (window.page.url, window.page.locator("tbody tr").count()) == (second, rows)
    assert window.page.locator("select[name=status]").input_value() == "running"
    assert window.wrong == []
