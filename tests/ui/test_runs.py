"""The pages of workflow runs."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.testing import FrozenClock
from tests.ui.visitor import Visitor


def made(state: Store, name: str = "review", **options: Any) -> str:
    with state.begin() as tx:
        return tx.workflows.runs.create(name, **{"trigger_id": "pr-1", "current_phase": "plan", **options}).id


def test_a_list_says_what_runs_and_json_is_that_of_the_command(state: Store, visitor: Visitor) -> None:
    id = made(state)
    main = visitor.get("/runs").main
    assert "review running plan pr-1" in main
    assert "1 run " in main
    (item,) = visitor.json("/runs")["items"]
    assert (item["id"], item["status"]) == (id, "running")


def test_no_runs(visitor: Visitor) -> None:
    assert "are made by tx.workflows.runs.create" in visitor.get("/runs").main
    assert "No run is like that." in visitor.get("/runs", status="failed").main


def test_a_list_is_filtered(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    with state.begin() as tx:
        failed = tx.workflows.runs.create("import", trigger_id="feed", current_phase="fetch").id
        tx.workflows.runs.finish(failed, "failed", error="the feed answered 504")
    clock.advance(delta=timedelta(days=3))
    other = made(state, trigger_id="pr-2")
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [other, failed]),
        ({"status": "failed"}, [failed]),
        ({"workflow_name": "review"}, [other]),
        ({"trigger_id": "feed"}, [failed]),
        ({"failure_kind": "error"}, [failed]),
        ({"failure_kind": "cancelled"}, []),
        ({"since": "2d"}, [other]),
        ({"status": "failed", "since": "2d"}, []),
    ]
    for given, expected in filters:
        page = visitor.get("/runs", **given)
        assert [id for id in (other, failed) if f"/runs/{id}" in page.text] == expected, given
        assert [item["id"] for item in visitor.json("/runs", **given)["items"]] == expected, given
    assert "the feed answered 504" in visitor.get("/runs", status="failed").main


@pytest.mark.parametrize(
    "given", [{"status": "odd"}, {"failure_kind": "odd"}, {"since": "yesterday"}, {"limit": "0"}, {"after": "x"}]
)
def test_a_filter_of_no_sense_is_refused(visitor: Visitor, given: dict[str, Any]) -> None:
    answer = visitor.get("/runs", **given)
    assert answer.status == 400
    assert next(iter(given)) in answer.main


def test_a_list_has_pages_that_keep_the_filters(state: Store, visitor: Visitor) -> None:
    for number in range(3):
        made(state, trigger_id=f"pr-{number}")
    first = visitor.get("/runs", limit=2, status="running")
    assert first.main.count("running plan") == 2
    cursor = visitor.json("/runs", limit=2, status="running")["cursor"]
    assert f"after={cursor}" in first.text
    assert "status=running" in first.text.partition('rel="next"')[2].partition(">")[0]
    assert visitor.get("/runs", limit=2, status="running", after=cursor).main.count("running plan") == 1


def test_a_missing_run_is_named(visitor: Visitor) -> None:
    answer = visitor.get("/runs/none")
    assert answer.status == 404
    assert "There is no workflow run" in answer.main


def worked(state: Store, clock: FrozenClock) -> str:
    """A run that did something of everything, and failed."""
    with state.begin() as tx:
        id = tx.workflows.runs.create(
            "review",
            trigger_id="pr/1",
            current_phase="read",
            repo="example/shop",
            issue_number=7,
            status="queued",
            context={"a": 1},
        ).id
    with state.begin() as tx:
        lease = tx.workflows.runs.claim("worker-7", lease=timedelta(minutes=30))
        assert lease is not None
        phase = tx.workflows.phases.begin(id, "read", lease=lease)
    clock.advance(seconds=90)
    with state.begin() as tx:
        tx.workflows.phases.finish(phase, output="read it all", lease=lease, input_tokens=1_000, output_tokens=20, cost_usd=0.25)
        assert phase.execution_id is not None
        tx.workflows.executions.set_session(phase.execution_id, "log-1")
        tx.workflows.effects.begin(id, "comment", lease=lease)
        tx.workflows.effects.complete(id, "comment", {"url": "there"})
        tx.workflows.signals.send(id, "tests-finished", {"passed": 812})
        tx.workflows.runs.update_node_status(id, "files", {"state": "done", "count": 3}, lease=lease)
        tx.workflows.runs.update_node_status(id, "ci", "failed", lease=lease)
        tx.workflows.runs.merge_scratch(id, {"remarks": 2}, lease=lease)
        child = tx.workflows.runs.create("review-file", trigger_id="f", current_phase="look", parent_run_id=id).id
        execution = tx.workflows.executions.start(
            trigger_type="w", trigger_id="f", skill="review-file:look", workflow_run_id=child
        )
        tx.workflows.executions.finish(execution.id, success=True, cost_usd=0.5, input_tokens=10, output_tokens=1)
        tx.workflows.approvals.request(id, gate="publish", summary="Publish it?", requested_by="bot")
    clock.advance(seconds=600)
    with state.begin() as tx:
        (gate,) = tx.workflows.approvals.pending()
        tx.workflows.approvals.respond(gate.id, approved=True, by="ines", response="go on")
        plan = tx.workflows.phases.begin(id, "plan", lease=lease)
    clock.advance(seconds=5)
    with state.begin() as tx:
        tx.workflows.phases.fail(plan, "the model answered 529", lease=lease)
        tx.workflows.runs.finish(id, "failed", error="it broke", lease=lease)
    return id


def test_a_run_tells_all_that_it_did(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    id = worked(state, clock)
    page = visitor.get(f"/runs/{id}")
    for words in (
        "review failed · error",
        "Why it ended: it broke",
        "repository example/shop issue #7",
        "took 11 min 35 s",
        "tokens 1,020 cost $0.2500",
        "review:plan the model answered 529 failed",
        "review:read succeeded",
        "publish approved 10 min ago by bot 5 s ago by ines Publish it? go on",
        "files done 1 field count 3",
        "ci failed",
        "review-file running look 10 min ago 11 $0.5000",
        "The run and all below it: 2 runs (1 failed, 1 running), 3 executions, 1,031 tokens, $0.7500.",
        "comment done",
        "url there",
        "1 tests-finished 10 min ago",
        "passed 812",
        "remarks 2",
    ):
        assert words in page.main, (words, page.main)


def test_a_time_line_has_a_bar_for_each_thing_on_one_axis(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    page = visitor.get(f"/runs/{worked(state, clock)}")
    drawn = page.text.partition('class="plot timeline"')[2].partition("</svg>")[0]
    for title in (
        "review:read: succeeded",
        "review:plan: failed, the model answered 529",
        "publish: approved by ines",
        "effect comment: done",
    ):
        assert f"<title>{title}</title>" in drawn
    assert "11 min 35 s" in drawn
    assert "kind-waiting" in drawn


def test_retries_and_waits_are_bars_too(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    id = made(state, status="queued", max_attempts=3)
    for _ in range(2):
        with state.begin() as tx:
            lease = tx.workflows.runs.claim("w", lease=timedelta(minutes=30))
            assert lease is not None
            tx.workflows.phases.begin(id, "read", lease=lease)
            tx.workflows.runs.release(lease, retry_in=timedelta(minutes=1), error="no answer")
        clock.advance(seconds=30)
        page = visitor.get(f"/runs/{id}")
        clock.advance(seconds=30)
    assert "read (try 2)" in page.main
    assert "attempt 3 (waits)" in page.main
    assert "Why its last attempt failed: no answer" in page.main
    with state.begin() as tx:
        lease = tx.workflows.runs.claim("w", lease=timedelta(minutes=30))
        assert lease is not None
        tx.workflows.signals.wait(lease, "paid", timeout=timedelta(hours=1))
    page = visitor.get(f"/runs/{id}")
    assert "It waits for the signal paid for 0 ms, until in 1 h" in page.main
    assert "paid (waits)" in page.main


def test_a_lease_says_who_works_and_until_when(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    id = made(state, status="queued")
    with state.begin() as tx:
        tx.workflows.runs.claim("worker-7", lease=timedelta(minutes=30))
    assert "worker worker-7 its lease holds until in 30 min" in visitor.get(f"/runs/{id}").main
    clock.advance(seconds=3600)
    assert "its lease ended 30 min ago" in visitor.get(f"/runs/{id}").main


def test_output_and_log_of_an_execution(state: Store, visit: Any, visitor: Visitor, clock: FrozenClock, tmp_path: Path) -> None:
    id = worked(state, clock)
    with state.read() as tx:
        first, second = tx.workflows.executions.for_run(id)
    assert "read it all" in visitor.get(f"/runs/{id}", output=first.id).main
    assert "It left no text." in visitor.get(f"/runs/{id}", output=second.id).main
    assert "It left no text." in visitor.get(f"/runs/{id}", output="another").main
    assert 'href="/logs"' in visitor.get(f"/runs/{id}").text
    folder = tmp_path / "projects" / "-src"
    folder.mkdir(parents=True)
    (folder / "log-1.jsonl").write_text("")
    assert 'href="/logs/-src/log-1"' in visit(session_logs=tmp_path).get(f"/runs/{id}").text


def test_a_long_run_is_shown_in_part(state: Store, visitor: Visitor) -> None:
    id = made(state)
    with state.begin() as tx:
        for number in range(103):
            tx.workflows.signals.send(id, f"news-{number}")
    page = visitor.get(f"/runs/{id}")
    assert "3 more signals" in page.main
    assert "news-101" not in page.main
    assert f"/runs/{id}?rows=1000" in page.text
    assert "news-101" in visitor.get(f"/runs/{id}", rows=1000).main


def test_what_another_program_stored_is_shown(state: Store, visitor: Visitor) -> None:
    id = made(state)
    with state.begin() as tx:
        tx.workflows.runs.append_phase(id, "read", {"timestamp": "no instant", "more": [1, "<i>"]})
        tx.workflows.runs.append_phase(id, "<script>alert(1)</script>", "plain")
        tx.workflows.runs.update_node_status(id, "n", 3)
        tx.workflows.runs.merge_scratch(id, {"deep": [[[]]] * 3})
    page = visitor.get(f"/runs/{id}")
    assert page.status == 200
    assert "timestamp no instant" in page.main
    assert "<script>alert" not in page.text


def test_a_form_changes_a_run_and_says_so(state: Store, changer: Visitor) -> None:
    id = made(state)
    assert "Cancel" in changer.get(f"/runs/{id}").main
    sent = changer.post(f"/runs/{id}/cancel", back=f"/runs/{id}")
    assert (sent.status, sent.headers["location"]) == (303, f"/runs/{id}")
    assert f"Cancelled the run {id}." in changer.get(f"/runs/{id}").main
    with state.read() as tx:
        run = tx.workflows.runs.get(id)
    assert run.status == "cancelled"
    assert run.context == {"error": "cancelled by ui"}


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        (["pause"], "paused"),
        (["pause", "resume"], "running"),
        (["cancel", "restart"], "running"),
        (["cancel", "retry"], "queued"),
    ],
)
def test_buttons(state: Store, changer: Visitor, steps: list[str], status: str) -> None:
    id = made(state)
    for step in steps:
        assert f'action="/runs/{id}/{step}"' in changer.get(f"/runs/{id}").text
        assert changer.post(f"/runs/{id}/{step}").status == 303
    with state.read() as tx:
        assert tx.workflows.runs.get(id).status == status


@pytest.mark.parametrize("step", ["pause", "resume", "cancel", "restart", "retry"])
def test_a_button_that_comes_too_late_is_told(state: Store, changer: Visitor, step: str) -> None:
    id = made(state)
    changer.get(f"/runs/{id}")
    with state.begin() as tx:
        tx.workflows.runs.finish(id, "succeeded")
    sent = changer.post(f"/runs/{id}/{step}")
    assert sent.status == 409
    assert "Nothing was changed" in sent.main
    assert changer.post(f"/runs/nobody/{step}").status == 404


def test_children_are_cancelled_with_their_parent(state: Store, changer: Visitor) -> None:
    parent = made(state)
    child = made(state, parent_run_id=parent)
    assert 'name="cascade"' in changer.get(f"/runs/{parent}").text
    changer.post(f"/runs/{parent}/cancel", cascade="1")
    with state.read() as tx:
        assert tx.workflows.runs.get(child).status == "cancelled"


def test_a_gate_is_answered_where_its_run_is_shown(state: Store, changer: Visitor) -> None:
    id = made(state)
    with state.begin() as tx:
        gate = tx.workflows.approvals.pause_for_approval(id, gate="deploy", summary="Shall it?", marker=("deploy", None)).id
    page = changer.get(f"/runs/{id}")
    assert "review : deploy wants a yes or no" in page.main
    assert f"/runs/{id}/resume" not in page.text
    assert changer.post(f"/approvals/{gate}/approve", back=f"/runs/{id}").headers["location"] == f"/runs/{id}"
    assert "review running" in changer.get(f"/runs/{id}").main
