"""What telemetry and programs give up, and what they keep however old it is."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from persist import Store
from persist.maintenance import prune
from persist.programs import models as programs
from persist.single_owner_files import create_run_file
from persist.testing import FrozenClock
from tests.maintenance.pruning_scenes import DAY, age, month_old


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


# ---------------------------------------------------------------- telemetry


def test_the_status_that_an_instance_has_stays(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for instance in ("a", "b"):
            for status in ("idle", "busy", "idle"):
                tx.telemetry.status.record(status, instance_id=instance)
    age(clock)
    assert month_old(store, "telemetry") == {"status_log": 4}
    with store.read() as tx:
        assert [tx.telemetry.status.current(instance_id=instance).new_status for instance in ("a", "b")] == ["idle", "idle"]  # type: ignore[union-attr]  # both have one


def test_the_newest_are_those_that_were_written_last(store: Store, clock: FrozenClock) -> None:
    """The status that an instance has, and what `keep` spares, whatever its clock said before."""
    me: dict[str, Any] = {"instance_id": "a"}
    ahead = 10 * DAY
    with store.begin() as tx:
        for status, at in (("ahead", clock() + ahead), ("behind", clock()), ("now", clock())):
            tx.telemetry.status.record(status, at=at, **me)
            tx.telemetry.tools.record(status, at=at, **me)
        for seconds, at in ((0, clock() + ahead), (1, clock()), (2, clock())):
            tx.telemetry.usage.sample(at=at + seconds * timedelta(seconds=1), token_input=seconds, **me)
    age(clock)
    assert month_old(store, "status_log") == {"status_log": 1}
    assert month_old(store, "tool_history", keep=1) == {"tool_history": 1}
    assert month_old(store, "usage_samples", keep=1) == {"usage_samples": 1}
    age(clock)
    assert month_old(store, "telemetry", keep=1) == {"status_log": 1, "tool_history": 1, "usage_samples": 1}
    with store.read() as tx:
        current = tx.telemetry.status.current(**me)
        assert current is not None
        assert current.new_status == "now"
        assert [call.tool_key for call in tx.telemetry.tools.last(**me)] == ["now"]
        assert tx.telemetry.usage.totals(**me).token_input == 2


def test_keep_counts_within_an_instance(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for number in range(10):
            tx.telemetry.tools.record("bash", instance_id="a" if number < 7 else "b")
            clock.advance(seconds=1)
    age(clock)
    assert month_old(store, "tool_history", keep=4) == {"tool_history": 3}
    with store.read() as tx:
        assert [len(tx.telemetry.tools.last(instance_id=instance)) for instance in ("a", "b")] == [4, 3]


def test_of_tasks_only_those_that_are_over_go(store: Store, clock: FrozenClock) -> None:
    me: dict[str, Any] = {"workspace_id": "w"}
    names = ("queued", "in_progress", "completed", "failed", "cancelled")
    with store.begin() as tx:
        tasks = tx.telemetry.tasks
        tasks.poll([{"id": name, "source_id": "s", "kind": "k", "title": "t"} for name in names], **me)
        tasks.cancel("cancelled", **me)
        claimed = [tasks.claim("box", max_parallel=9, **me) for _ in range(4)]
        for one in claimed:
            assert one is not None
        tasks.complete("completed", **me)
        tasks.fail("failed", **me)
    age(clock)
    assert month_old(store, "telemetry") == {"tasks": 2}
    with store.read() as tx:
        assert {task.id for task in tx.telemetry.tasks.list(**me)} == {"queued", "in_progress", "failed"}


def test_a_link_that_is_still_looked_at_stays(store: Store, clock: FrozenClock) -> None:
    me: dict[str, Any] = {"instance_id": "box"}
    url = "https://github.com/example/project/issues/"
    with store.begin() as tx:
        tx.telemetry.links.upsert(f"{url}1", fetched_at=clock(), issue_state="open", **me)
        tx.telemetry.links.record_error(f"{url}2", "no answer", **me)
    age(clock)
    with store.begin() as tx:
        tx.telemetry.links.record_error(f"{url}3", "no answer", **me)
    assert month_old(store, "telemetry") == {"github_link_statuses": 2}


# ---------------------------------------------------------------- programs


def test_an_ended_run_goes_with_all_of_it_and_names_its_attachments(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        verbs = tx.programs
        for id in ("over", "running"):
            verbs.runs.create(id=id)
            frame = verbs.executions.begin(id, statement_index=1, statement_text="do")
            verbs.executions.begin(id, statement_index=2, statement_text="do", parent_id=frame.id)
            verbs.bindings.bind(id, "x", "1", kind="let")
            verbs.agents.start(id, "captain", resume=False)
            verbs.agents.add_segment(id, "captain", prompt="p", summary="s")
            verbs.imports.add(id, "alias", "https://example.com/p")
            verbs.subagents.start(id, isolation="file")
        verbs.runs.finish("over", "completed")
        tx._work._core(
            update(programs.bindings).where(programs.bindings.c.run_id == "over").values(attachment_path="attachments/x.md"), None
        )
    age(clock)
    report = prune(store, "programs", older_than=30 * DAY)
    once = ("run", "bindings", "agents", "agent_segments", "imports", "program_subagents")
    assert report.tables == {"execution": 2, **dict.fromkeys(once, 1)}
    assert report.files == ["over: attachments/x.md"]


def test_a_run_stays_in_its_own_file(tmp_path: Path, clock: FrozenClock) -> None:
    with create_run_file(tmp_path, clock=clock) as store:
        with store.begin() as tx:
            tx.programs.bindings.bind(store.run_id or "", "x", "1", kind="let")
            tx.programs.runs.finish(store.run_id or "", "completed")
            tx.programs.runs.create(id="guest")
            tx.programs.runs.finish("guest", "interrupted")
        age(clock)
        assert month_old(store, "programs") == {"run": 1}
        with store.read() as tx:
            assert [run.id for run in tx.programs.runs.list().items] == [store.run_id]
            assert len(tx.programs.bindings.list(store.run_id or "")) == 1
