"""A row of a thread that cannot be read: once the doctor has set it aside, verbs work on what can be assembled without it."""

from typing import Any

import pytest

from persist import Store
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.maintenance import doctor, quarantined, restore_row

HEAD = Blob("json", b"{}")


def item(text: str) -> Blob:
    return Blob("json", text.encode())


@pytest.fixture
def grown(store: Any) -> Any:
    """Checkpoints 1 to 4: `messages` grows by one at each, `sum` is stored at 1 and 4 and rebuilt from what was written since."""
    with store.begin() as tx:
        states = tx.checkpoints.states
        for number in range(1, 5):
            whole = number in (1, 4)
            values: dict[str, Any] = {"messages": (f"{number}", [item(str(n)) for n in range(number)])}
            states.put(
                "t",
                f"{number}",
                head=HEAD,
                parent_id=f"{number - 1}" if number > 1 else None,
                run_id=f"run{number}",
                versions={"messages": f"{number}", "sum": f"{number}"},
                values=values | ({"sum": (f"{number}", item("sum"))} if whole else {}),
                partial=[] if whole else ["sum"],
            )
            states.put_writes("t", f"{number}", [Write(0, "sum", item(f"+{number}"))], task_id="task")
    return store


SPOILT = {
    "the last piece": ("pieces", "data = 'text'", "position = 3", ["1", "2", "3"]),
    "a piece in the middle": ("pieces", "data = 'text'", "position = 1", ["1"]),
    "a value": ("values", "spans_json = '[7]'", "channel = 'messages' AND version = '4'", ["1", "2", "3"]),
    "a checkpoint": ("states", "versions_json = '[7]'", "id = '2'", ["1", "4"]),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_every_verb_works_on_what_is_left(grown: Any, raw: Any, database_url: str, spoilt: str) -> None:
    table, wrong, where, ids = SPOILT[spoilt]
    if table == "pieces" and not raw.is_sqlite:  # there no cell of a piece can be unreadable
        wrong, table, where = "spans_json = '[7]'", "values", f"channel = 'messages' AND version = '{len(ids) + 1}'"
        ids = [id for id in ["1", "2", "3", "4"] if id not in (f"{len(ids) + 1}", *(["3"] if len(ids) == 1 else []))]
    raw.rows(f"UPDATE checkpoint_{table} SET {wrong} WHERE {where}")
    with Store.open(database_url) as keeper:
        (finding,) = doctor(keeper, fix=True)
        assert (finding.code, finding.fixed) == ("unreadable", True)
        gone = {"1", "2", "3", "4"} - {*ids}
        assert all(f"checkpoint_states t, '', {id}" in finding.message for id in gone - {"2"} or gone)
        assert doctor(keeper) == []
        whole = quarantined(keeper)
    with grown.begin() as tx:
        states, threads = tx.checkpoints.states, tx.checkpoints.threads
        found = states.find("t")
        assert found.checkpoint.id == ids[-1]
        assert found.values["messages"] == [item(str(n)) for n in range(int(ids[-1]))]
        left = states.page(thread_id="t")
        assert sorted(one.id for one in left) == ids
        assert [len(one.values["messages"]) for one in states.load(left)] == [int(one.id) for one in left]
        assert all(one.parent_id is None or one.parent_id in ids for one in left)
        for id in ids:
            seed = states.history("t", id, ["sum"])["sum"].seed
            assert (seed is not None) == (id in ("2", "3")), id
        assert threads.copy("t", "u")
        assert threads.keep_latest("u") + len(states.page(thread_id="u")) == len(ids)
        states.put("u", "9", head=HEAD, versions={"messages": "9"}, values={"messages": ("9", [item("0"), item("new")])})
        assert states.find("u").values["messages"] == [item("0"), item("new")]
        assert threads.delete("u")
    with Store.open(database_url) as keeper:
        restore_row(keeper, whole[0].id)
    with grown.read() as tx:
        assert {one.id: one.parent_id for one in tx.checkpoints.states.page(thread_id="t")}.get("4", "3") == "3"
