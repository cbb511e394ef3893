"""The pages of instances and of the tasks of workspaces."""

from datetime import timedelta
from typing import Any

from persist import Store
from persist.telemetry.schemas import TaskState
from persist.testing import FrozenClock
from tests.ui.visitor import Visitor

HOUR = timedelta(hours=1)
EVIL = "<script>alert(1)</script>\x1b[2J"


def _of(instance: str) -> Any:
    return {"instance_id": instance}


def busy(state: Store, clock: FrozenClock, instance: str = "box") -> None:
    clock.set(clock().replace(microsecond=0))
    now, me = clock(), _of(instance)
    for word, ago in (("idle", 30 * HOUR), ("busy", 2 * HOUR), ("question", HOUR)):
        state.telemetry.status.record(word, at=now - ago, metadata={"prompt": EVIL} if word == "question" else None, **me)
    state.telemetry.usage.sample(at=now - 3 * HOUR, token_input=1000, token_output=20, cost_usd_micros=1_500_000, **me)
    state.telemetry.usage.sample(at=now - HOUR, token_input=5, **me)
    state.telemetry.tools.record("bash", exit_code=2, duration_ms=1200, at=now - HOUR, **me)
    state.telemetry.tools.record(f"edit{EVIL}", exit_code=0, at=now - HOUR, **me)
    state.telemetry.tags.record("issue", f"https://example.com/{EVIL}", **me)
    state.telemetry.links.upsert(
        "https://github.com/example/shop/pull/7", fetched_at=now - HOUR, pr_state="open", build_state="failed", **me
    )


def test_instances_are_listed_by_their_last_change(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    assert "instance appears here once" in visitor.get("/telemetry").main
    busy(state, clock)
    for number in range(3):
        state.telemetry.status.record("idle", at=clock() - timedelta(days=number + 1), instance_id=f"other-{number}")
    page = visitor.get("/telemetry")
    assert "box question 1 h ago" in page.main
    assert ("<script>alert" in page.text, "\x1b" in page.text) == (False, False)
    assert [one["instance_id"] for one in visitor.json("/telemetry", limit=2)["items"]] == ["box", "other-0"]
    first = visitor.get("/telemetry", limit=2)
    assert 'href="/telemetry?limit=2&amp;after=other-0"' in first.text
    assert "other-2" in visitor.get("/telemetry", limit=2, after="other-0").main


def test_an_instance_is_shown_with_what_it_did_and_used(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    busy(state, clock)
    page = visitor.get("/telemetry/box")
    assert "box question since 1 h ago" in page.main
    assert "idle 22 h" in page.main, "what lasted longer than the range counts in it alone"
    assert "busy 1 h" in page.main
    assert "from 2026-01-02 00:00 UTC: 1,020 tokens" in page.main
    assert "from 2026-01-02 00:00 UTC: $1.5000" in page.main
    assert "bash 1 h ago failed · 2 1 s" in page.main
    assert "example/shop pr 7 open failed" in page.main
    assert "issue https://example.com/" in page.main
    assert ("<script>alert" in page.text, "\x1b" in page.text) == (False, False)
    assert "idle 1 d 4 h" in visitor.get("/telemetry/box", range="7d").main
    assert "edit" not in visitor.get("/telemetry/box", failures="1").main
    assert "No calls of tools like these." in visitor.get("/telemetry/box", tool="none").main
    found = visitor.json("/telemetry/box")
    assert sorted(found) == ["links", "status", "tools", "usage"]
    assert found["usage"]["kept"]["cost_usd_micros"] == 1_500_000
    assert [one["new_status"] for one in found["status"]["items"]] == ["idle", "busy", "question"]


def test_calls_of_models_and_earlier_calls_of_tools(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    state.telemetry.usage.sample(at=clock(), model="large", agent="build", token_input=7, error=EVIL, instance_id="box")
    for number in range(52):
        state.telemetry.tools.record(f"tool-{number}.", instance_id="box")
    page = visitor.get("/telemetry/box")
    assert "large now build 7" in page.main
    assert 'href="/usage?scope=instance%3Abox"' in page.text
    assert ("tool-2." in page.main, "tool-1." in page.main, "earlier calls" in page.main) == (True, False, True)
    (before,) = {part.split('"')[0] for part in page.text.split("before=")[1:]}
    earlier = visitor.get("/telemetry/box", before=before).main
    assert ("tool-1." in earlier, "tool-2." in earlier, "newest calls" in earlier) == (True, False, True)


def test_a_missing_instance_is_named(visitor: Visitor) -> None:
    answer = visitor.get("/telemetry/none")
    assert (answer.status, "There is no instance" in answer.main) == (404, True)
    assert visitor.get("/telemetry/none", range="1y").status == 400


def test_tasks_are_those_of_a_workspace(state: Store, visitor: Visitor) -> None:
    assert "No tasks." in visitor.get("/telemetry").main
    for workspace in ("shop", "site"):
        found = [
            {"id": f"{workspace}-{number}", "source_id": "s", "kind": "issue", "title": f"Fix {number} of {workspace}"}
            for number in range(2)
        ]
        state.telemetry.tasks.poll(found, workspace_id=workspace)
    state.telemetry.tasks.claim("box", lease=HOUR, workspace_id="shop")
    main = visitor.get("/telemetry").main
    assert ("Tasks of shop" in main, "Fix 0 of shop shop-0 in_progress" in main, "of site" in main) == (True, True, False)
    other = visitor.get("/telemetry", workspace="site", state=TaskState.QUEUED.value).main
    assert "Fix 1 of site site-1 queued" in other
    assert "No tasks in this state." in visitor.get("/telemetry", workspace="site", state="failed").main


def test_the_instance_of_a_file_may_have_no_name(state: Store, visitor: Visitor) -> None:
    if not state.runtime.dialect.one_file:
        return
    state.telemetry.status.record("idle")
    state.telemetry.tasks.poll([{"id": "t", "source_id": "s", "kind": "k", "title": "Its own task"}])
    page = visitor.get("/telemetry")
    assert "the instance of this file idle" in page.main
    assert "Its own task" in page.main
    (address,) = {part.split('"')[0] for part in page.text.split('href="/telemetry/')[1:]}
    assert "The instance of this file idle" in visitor.get(f"/telemetry/{address}").main
