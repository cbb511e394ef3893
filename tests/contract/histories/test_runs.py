"""Runs of agents: registered once, events that are appended once, snapshots that share messages, the ledger of tool effects."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from persist.errors import Conflict, NotFound
from persist.framework_state.histories.models import entries
from persist.framework_state.histories.schemas import Message
from persist.testing import START, FrozenClock
from tests.contract.faces import on_one_face
from tests.contract.histories.scenes import save, texts


def test_a_run_is_registered_once(store: Any) -> None:
    with store.begin() as tx:
        runs, about = tx.histories.runs, {"agent_name": "\x00", "registration_id": "r", "metadata": {"a": "b"}}
        runs.register("run", started_at=START, conversation_id="c", parent_id="p", **about)
        runs.register("run", started_at=START, conversation_id="c", parent_id="p", **about)
        found = runs.get("run")
        assert runs.find("run") == found
        assert (found.conversation_id, found.parent_id, found.agent_name, found.metadata) == ("c", "p", "\x00", {"a": "b"})
    for other in ({}, {"conversation_id": "c", "parent_id": "p", **about, "metadata": {}}):
        with pytest.raises(Conflict), store.begin() as tx:
            tx.histories.runs.register("run", started_at=START, **other)
    assert store.histories.runs.get("run") == found


def test_a_run_that_only_took_steps_is_not_registered_and_is_shown(store: Any) -> None:
    with store.begin() as tx:
        tx.histories.run_events.append("run", "run_started", step_index=0, at=START)
        assert tx.histories.runs.find("run") is None
        assert tx.histories.runs.started() == []
        (found,) = tx.histories.runs.list().items
        assert found == tx.histories.runs.get("run")
        assert (found.id, found.started_at, found.agent_name, found.metadata) == ("run", None, None, {})
        with pytest.raises(NotFound):
            tx.histories.runs.get("unknown")
        tx.histories.runs.register("run", started_at=START)
        assert tx.histories.runs.get("run").started_at == START
        assert [run.id for run in tx.histories.runs.list().items] == ["run"]
        assert len(tx.histories.run_events.list("run")) == 1


def test_runs_are_listed_by_their_start(store: Any, clock: FrozenClock) -> None:
    with store.begin() as tx:
        runs = tx.histories.runs
        for number, (parent, conversation) in enumerate([("p", "c"), ("p", None), (None, "c"), ("p", "c")]):
            clock.advance(seconds=1)
            at = START + timedelta(microseconds=5 - number)
            runs.register(f"r{number}", started_at=at, parent_id=parent, conversation_id=conversation)
        assert [run.id for run in runs.started()] == ["r3", "r2", "r1", "r0"]
        assert [run.id for run in runs.started(parent_id="p")] == ["r3", "r1", "r0"]
        assert [run.id for run in runs.started(parent_id="p", conversation_id="c")] == ["r3", "r0"]
        page = runs.list(limit=3)
        assert [run.id for run in page.items] == ["r3", "r2", "r1"]
        assert [run.id for run in runs.list(after=page.cursor).items] == ["r0"]


def test_an_event_is_appended_once(store: Any) -> None:
    with store.begin() as tx:
        events = tx.histories.run_events
        assert events.append("run", "a", step_index=0, at=START, idempotency_key="k", error="\x00\ud83d")
        assert not events.append("run", "b", step_index=1, at=START, idempotency_key="k")
        assert events.append("run", "c", step_index=2, at=START)
        assert events.append("run", "c", step_index=2, at=START)
        assert events.append("other", "d", step_index=0, at=START, idempotency_key="k")
        shown = [(event.position, event.kind, event.error) for event in events.list("run")]
        assert shown == [(0, "a", "\x00\ud83d"), (1, "c", None), (2, "c", None)]


def test_snapshots_read_as_they_were_saved(store: Any) -> None:
    with store.begin() as tx:
        about = {"conversation_id": "c", "parent_run_id": "p", "agent_name": "\x00", "idempotency_key": "1:k"}
        save(tx, "ab", 1, **about)
        save(tx, "abc", 2, state="interrupted")
        save(tx, "", 3, state="interrupted")
        snapshots = tx.histories.snapshots
        complete = snapshots.latest("run")
        assert complete.snapshot.model_dump() == {
            "run_id": "run",
            "position": 0,
            "state": "complete",
            "step_index": 1,
            "taken_at": START + timedelta(seconds=1),
            "head_id": complete.entries[-1].id,
            **about,
        }
        assert [entry.message["said"] for entry in complete.entries] == ["a", "b"]
        newest = snapshots.latest("run", include_interrupted=True)
        assert (newest.snapshot.step_index, newest.snapshot.head_id, list(newest.entries)) == (3, None, [])
        assert texts(tx) == ["ab", "abc", ""]
        assert texts(tx, interrupted=False) == ["ab"]
        assert snapshots.latest("other") is None


def test_a_snapshot_repeats_no_message_that_the_run_has(store: Any) -> None:
    with store.begin() as tx:
        for number, messages in enumerate(["ab", "abc", "abx", "abcd", "ab", "xab", "abxy", "xabc", "abab"]):
            save(tx, messages, number)
        assert texts(tx) == ["ab", "abc", "abx", "abcd", "ab", "xab", "abxy", "xabc", "abab"]
        ids = {entry.id for one in tx.histories.snapshots.list("run") for entry in one.entries}
        assert len(ids) == len({"a", "ab", "abc", "abx", "abcd", "x", "xa", "xab", "abxy", "xabc", "aba", "abab"})


def test_what_a_message_holds_besides_its_json_makes_it_another(store: Any) -> None:
    with store.begin() as tx:
        for number, message in enumerate([Message("a"), Message("a", extra=1), Message("a", kind="k")]):
            tx.histories.snapshots.save("run", [message], state="complete", step_index=number, taken_at=START)
        found = tx.histories.snapshots.list("run")
        assert [(one.entries[0].kind, one.entries[0].extra) for one in found] == [("message", None), ("message", 1), ("k", None)]


def test_a_snapshot_is_saved_once_and_no_older_one_after_it(store: Any) -> None:
    with store.begin() as tx:
        saved = [
            save(tx, letters, number, idempotency_key=key, sequence=sequence)
            for number, (letters, key, sequence) in enumerate(
                [
                    ("a", "2:a", 2),
                    ("b", "2:a", 2),  # again
                    ("c", "1:z", 1),  # older
                    ("d", "2:b", 2),
                    ("e", "plain", None),
                    ("f", "plain", None),  # again
                    ("g", "3:a", 3),
                    ("h", "2:c", 2),  # older
                ]
            )
        ]
        assert saved == [True, False, False, True, True, False, True, False]
        assert texts(tx) == ["a", "d", "e", "g"]


def test_what_was_dropped_is_not_saved_again(store: Any) -> None:
    with store.begin() as tx:
        for number in range(3):
            save(tx, "abc"[: number + 1], number, idempotency_key=f"{number}:k", sequence=number, keep=1)
        assert texts(tx) == ["abc"]
        assert not save(tx, "a", 0, idempotency_key="0:k", sequence=0, keep=1)


@pytest.mark.parametrize(
    ("states", "keep", "left"),
    [
        ("cccc", 2, [2, 3]),
        ("cici", 1, [2, 3]),
        ("ciii", 1, [0, 3]),
        ("ciii", 2, [0, 2, 3]),
        ("iiii", 2, [2, 3]),
        ("iiic", 1, [3]),
        ("ciii", 9, [0, 1, 2, 3]),
    ],
)
def test_the_newest_stay_and_the_newest_complete_one(store: Any, states: str, keep: int, left: list[int]) -> None:
    with store.begin() as tx:
        for number, state in enumerate(states):
            save(tx, "abcd"[: number + 1], number, state={"c": "complete", "i": "interrupted"}[state], keep=keep)
        found = tx.histories.snapshots.list("run", include_interrupted=True)
        assert [one.snapshot.step_index for one in found] == left
        assert texts(tx) == ["abcd"[: number + 1] for number in left]


@on_one_face
def test_messages_of_dropped_snapshots_go_with_them(store: Any) -> None:
    def count() -> int:
        with store.begin() as tx:
            rows = tx._work.found(select(func.count()).select_from(entries))
            return int(rows[0][0])

    with store.begin() as tx:
        save(tx, "abcd", 0, keep=1)
        save(tx, "abx", 1, keep=1)
    assert count() == 3
    with store.begin() as tx:
        save(tx, "q", 2, keep=1)
        assert texts(tx) == ["q"]
    assert count() == 1
    with store.begin() as tx:
        save(tx, "abc", 0, run="other")
        assert tx.histories.runs.delete("run")
        assert not tx.histories.runs.delete("run")
        assert texts(tx, "other") == ["abc"]
    assert count() == 3


def test_the_ledger_of_tool_effects(store: Any) -> None:
    with store.begin() as tx:
        effects = tx.histories.tool_effects
        for call in ("b", "a", "c"):
            effects.put("run", call, tool_name="\x00", status="started", started_at=START)
        effects.put("run", "a", tool_name="t", status="failed", started_at=START, ended_at=START, effect_summary="s")
        effects.put("other", "a", tool_name="t", status="started", started_at=START)
        assert [effect.tool_call_id for effect in effects.unresolved("run")] == ["b", "c"]
        found = effects.find("run", "a")
        assert (found.tool_name, found.status, found.ended_at, found.effect_summary) == ("t", "failed", START, "s")
        effects.put("run", "b", tool_name="t", status="started", started_at=START, idempotency_key="k")
        assert [effect.tool_call_id for effect in effects.unresolved("run")] == ["b", "c"]
        assert effects.find("run", "gone") is None


def test_deleting_a_run_takes_its_steps(store: Any) -> None:
    with store.begin() as tx:
        histories = tx.histories
        histories.runs.register("run", started_at=START)
        histories.run_events.append("run", "a", step_index=0, at=START)
        histories.tool_effects.put("run", "a", tool_name="t", status="started", started_at=START)
        save(tx, "ab", 0)
        assert histories.runs.delete("run")
        assert histories.run_events.list("run") == []
        assert histories.tool_effects.unresolved("run") == []
        assert histories.snapshots.latest("run") is None
