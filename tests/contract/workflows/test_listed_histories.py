"""A list shows of each phase what it was, when, and how it stands; what came of it is for `get`, up to a cap for all of them."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import PayloadTooLarge
from persist.settings import Settings
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import NESTED, ask, do, make, stored

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


def test_a_list_of_large_histories_is_small(counted_store: Any) -> None:
    made = make(counted_store)
    for number in range(12):
        do(counted_store, "append_phase", made.id, f"phase {number}", {"result": "x" * 60_000})
    assert len(str(stored(counted_store, made.id).phase_history)) > 720_000
    assert len(str(listed(counted_store, "list"))) < 5_000


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


@pytest.fixture
def small(open_store: Callable[..., Any]) -> Any:
    return open_store(settings=Settings(max_scratch_bytes=200, max_history_bytes=1000))


def test_the_whole_history_has_a_cap(small: Any) -> None:
    made = make(small)
    for _ in range(4):
        before = do(small, "append_phase", made.id, "code", "x" * 150)
    with pytest.raises(PayloadTooLarge) as refused:
        do(small, "append_phase", made.id, "code", "x" * 150)
    assert (refused.value.path, refused.value.limit) == ("phase_history", 1000)
    assert refused.value.size > 1000
    with pytest.raises(PayloadTooLarge):
        do(small, "finish", made.id, "succeeded", terminal_marker=("done", "x" * 150))
    with small.begin() as tx, pytest.raises(PayloadTooLarge):
        tx.workflows.approvals.pause_for_approval(made.id, gate="g", summary="?", marker=("wait", "x" * 150))
    assert stored(small, made.id) == before
    assert do(small, "finish", made.id, "succeeded").phase_history == before.phase_history  # it can end, and keeps what it has
