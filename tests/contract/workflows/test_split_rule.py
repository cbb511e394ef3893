"""The split rule: a run keeps small values. Large text is refused by name, and the refusal says where it belongs.

The cap counts the bytes of a value's JSON text: for plain text two more than its characters.
"""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import PayloadTooLarge
from persist.settings import Settings
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import HOUR, NESTED, ask, do, held, make, queue, stored

CAP = 64 * 1024
FULL = "x" * (CAP - 2)
OVER = FULL + "x"


@pytest.fixture
def small(open_store: Callable[..., Any]) -> Any:
    """A store with caps of 100 bytes a value and 1,000 bytes a column."""
    return open_store(settings=Settings(max_scratch_bytes=100, max_json_bytes=1000))


def refused(path: str, size: int, limit: int, verb: Callable[[], Any]) -> str:
    """That the verb is refused so; its words."""
    with pytest.raises(PayloadTooLarge) as error:
        verb()
    assert (error.value.path, error.value.size, error.value.limit) == (path, size, limit)
    return str(error.value)


def test_a_value_of_64_kib_is_kept(store: Any, other: Any) -> None:
    made = make(store, context={"a": FULL, "b": FULL})
    do(store, "merge_scratch", made.id, {"a": FULL, "b": FULL})
    do(store, "merge_scratch", made.id, {"c": FULL})
    do(store, "update_node_status", made.id, "lint", FULL)
    do(store, "append_phase", made.id, "code", FULL)
    kept = stored(other, made.id)
    assert (kept.context, kept.scratch) == ({"a": FULL, "b": FULL}, {"a": FULL, "b": FULL, "c": FULL})
    assert (kept.node_statuses, kept.phase_history[0]["value"]) == ({"lint": FULL}, FULL)


def test_a_byte_more_is_refused_by_name_and_nothing_is_written(store: Any) -> None:
    lease = held(store)
    made, waiting = make(store, context={"kept": 1}), queue(store)
    with store.begin() as tx:
        runs = tx.workflows.runs
        oversized: list[tuple[str, Callable[[], Any]]] = [
            ("scratch.plan", lambda: runs.merge_scratch(made.id, {"ok": 1, "plan": OVER})),
            ("node_statuses.lint", lambda: runs.update_node_status(made.id, "lint", OVER)),
            ("entry", lambda: runs.append_phase(made.id, "code", OVER)),
            ("entry", lambda: runs.finish(made.id, "succeeded", terminal_marker=("done", OVER))),
            ("error", lambda: runs.finish(made.id, "failed", error=OVER)),
            ("error", lambda: runs.release(lease, error=OVER)),
            ("reason", lambda: runs.cancel(made.id, reason=OVER)),
            ("reason", lambda: runs.expire_queued(waiting, OVER)),
            ("context.plan", lambda: runs.create("w", trigger_id="t", current_phase="p", context={"plan": OVER})),
        ]
        for path, verb in oversized:
            words = refused(path, CAP + 1, CAP, verb)
            assert "executions.set_output" in words
            assert "session log" in words
        assert runs.get(made.id) == made
        assert runs.get(waiting).status == "queued"
        assert runs.count() == 3
        assert runs.get(lease.run_id) == lease.run


def test_names_are_kept_too_and_have_the_same_cap(store: Any) -> None:
    made = make(store)
    refused("phase", CAP + 1, CAP, lambda: do(store, "append_phase", made.id, OVER))
    refused("phase", CAP + 1, CAP, lambda: do(store, "finish", made.id, "failed", terminal_marker=(OVER, None)))
    refused("node", CAP + 1, CAP, lambda: do(store, "update_node_status", made.id, OVER, "done"))
    refused("scratch", CAP + 1, CAP, lambda: do(store, "merge_scratch", made.id, {OVER: 1}))
    refused("current_phase", CAP + 1, CAP, lambda: make(store, current_phase=OVER))
    refused("context", CAP + 1, CAP, lambda: make(store, context={OVER: 1}))
    assert stored(store, made.id) == made
    assert ask(store, "count") == 1


@each(("text", "size"), [("é", 2), ("😀", 4), ("\n", 2), ("\x00", 6)])
def test_the_cap_counts_bytes_of_json(store: Any, text: str, size: int) -> None:
    made = make(store)
    fits = text * ((CAP - 2) // size)
    assert do(store, "merge_scratch", made.id, {"a": fits}).scratch == {"a": fits}
    over = text * ((CAP - 2) // size + 1)
    with pytest.raises(PayloadTooLarge):
        do(store, "merge_scratch", made.id, {"a": over})


def test_the_cap_is_for_each_value_of_an_object_whole(small: Any) -> None:
    made = make(small, context={"a": "x" * 98, "b": "x" * 98})
    nested = {"deep": {"list": ["x" * 40, "x" * 40]}}
    refused("scratch.a", 105, 100, lambda: do(small, "merge_scratch", made.id, {"a": nested}))
    refused("entry", 105, 100, lambda: do(small, "append_phase", made.id, "p", nested))
    refused("node_statuses.n", 105, 100, lambda: do(small, "update_node_status", made.id, "n", nested))
    assert stored(small, made.id) == made


def test_an_object_of_many_small_values_is_capped_as_a_whole(small: Any) -> None:
    made = make(small)
    for number in range(9):
        do(small, "merge_scratch", made.id, {str(number): "x" * 98})
        do(small, "update_node_status", made.id, str(number), "x" * 98)
    before = stored(small, made.id)
    oversized: list[tuple[str, Callable[[], Any]]] = [
        ("scratch", lambda: do(small, "merge_scratch", made.id, {"9": "x" * 98})),
        ("node_statuses", lambda: do(small, "update_node_status", made.id, "9", "x" * 98)),
        ("context", lambda: make(small, context={str(number): "x" * 98 for number in range(10)})),
    ]
    for path, verb in oversized:
        with pytest.raises(PayloadTooLarge) as error:
            verb()
        assert (error.value.path, error.value.limit) == (path, 1000)
    assert stored(small, made.id) == before


def test_a_history_is_capped_as_a_whole(small: Any) -> None:
    made = make(small)
    for _ in range(6):
        before = do(small, "append_phase", made.id, "code", "x" * 90)
    with pytest.raises(PayloadTooLarge) as refused_entry:
        do(small, "append_phase", made.id, "code", "x" * 90)
    assert (refused_entry.value.path, refused_entry.value.limit) == ("phase_history", 1000)
    with small.begin() as tx:
        with pytest.raises(PayloadTooLarge) as refused_marker:
            tx.workflows.runs.finish(made.id, "succeeded", terminal_marker=("done", "x" * 90))
        assert refused_marker.value.path == "phase_history"
        assert tx.workflows.runs.get(made.id) == before


def test_what_was_stored_under_a_larger_cap_stays_and_can_go_on(store: Any, small: Any) -> None:
    """The caps are for what is written now."""
    made = make(store, status="queued", context={"a": "x" * 500})
    do(store, "merge_scratch", made.id, {"a": "x" * 500})
    lease = do(small, "claim", "w", lease=HOUR)
    changed = do(small, "merge_scratch", made.id, {"b": 1}, lease=lease)
    assert changed.scratch == {"a": "x" * 500, "b": 1}
    finished = do(small, "finish", made.id, "failed", error="boom", lease=lease)
    assert finished.context == {"a": "x" * 500, "error": "boom"}


# A list shows of each phase what it was, when, and how it stands; what came of it is for `get`, up to a cap for all of them.


LONG = "é" * 20_000
LISTS = ["list", "list_rows", "list_active"]


def listed(store: Any, verb: str) -> list[Any]:
    found = ask(store, verb)
    (run,) = found if isinstance(found, list) else found.items
    history: list[Any] = run.phase_history
    return history


@pytest.mark.parametrize("verb", LISTS)
@pytest.mark.parametrize("size", [1, 20_000], ids=["small", "large"])
def test_a_list_gives_names_and_get_gives_everything(store: Any, clock: Any, verb: str, size: int) -> None:
    made = make(store)
    for number in range(3):
        clock.advance(seconds=1)
        do(
            store,
            "append_phase",
            made.id,
            f'ph\\a"se 日本 {number}',
            {"result": "é" * size, "status": 'o"k\nä', "success": number == 0},
        )
    do(store, "append_phase", made.id, "plain")
    do(store, "append_phase", made.id, "odd", {"status": {"nested": LONG}, "success": None, **NESTED})
    whole = stored(store, made.id).phase_history
    assert [len(item.get("result", "")) for item in whole] == [size, size, size, 0, 0]
    assert listed(store, verb) == [
        {name: item[name] for name in ("phase", "timestamp", "status", "success") if name in item and name in shown}
        for item, shown in zip(
            whole, [("phase", "timestamp", "status", "success")] * 3 + [("phase", "timestamp")] * 2, strict=True
        )
    ]


@pytest.mark.parametrize("beside", ["", LONG], ids=["small", "large"])
def test_a_status_is_shown_where_it_is_short(store: Any, beside: str) -> None:
    made = make(store)
    for status in ("x" * 600, "x" * 601, 7, 0.5, "nul\x00", "\ud83d", ["x"]):
        do(store, "append_phase", made.id, "plan", {"status": status, "beside": beside})
    assert [item.get("status") for item in listed(store, "list")] == ["x" * 600, None, 7, 0.5, "nul\x00", "\ud83d", None]


def test_a_list_is_small_whatever_the_phases_call_their_names_and_instants(store: Any) -> None:
    made = make(store)
    for number in range(12):
        do(store, "append_phase", made.id, f"{number} {LONG}", {"timestamp": {"nested": LONG}})
    items = listed(store, "list")
    assert len(items) == 12
    assert {len(item["phase"]) for item in items} == {600}
    assert {item["timestamp"] for item in items} == {None}


@pytest.mark.parametrize("history", ['["plan", {"phase": "code"}, 7, null]', "[]"])
def test_what_another_program_wrote(store: Any, raw: Raw, history: str) -> None:
    make(store)
    for text in (history, history.replace("[", f'[{{"phase": "first", "result": "{LONG}"}},', 1).replace(",]", "]")):
        raw.rows("UPDATE workflow_runs SET phase_history = ?", text)
        assert [item["phase"] for item in listed(store, "list")] == [name for name in ("first", "code") if f'"{name}"' in text]
