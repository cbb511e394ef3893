"""A put that remembers how its lists are stored writes nothing where that is no longer so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from persist import Store
from persist.db.changes.batch import RequirementMissed
from persist.errors import StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.framework_state.checkpoints.states import CheckpointStates
from persist.framework_state.checkpoints.storing import NewState, extend, growing, store
from persist.framework_state.checkpoints.values import Addition, KnownList
from persist.maintenance import doctor, quarantined, restore_row
from persist.store.transaction import transaction_per_verb


def pieces(*texts: str) -> list[Blob]:
    return [Blob("text", text.encode()) for text in texts]


@pytest.fixture
def opened(database_url: str) -> Any:
    with Store.open(database_url) as opened:
        yield opened


class KnowingStates(CheckpointStates):
    """States that are put by somebody who knows how a list is stored, and is given its whole value or what was added to it."""

    known: KnownList | None = None
    added: tuple[str, Addition] | None = None
    stored: Any = None

    def _store(self, new: NewState) -> None:
        if self.added is not None:
            new = replace(new, values={**new.values, "said": self.added})
        lists = None if self.known is None else growing(new, {"said": self.known})
        if self.known is not None and self.added is None:
            assert lists is not None
        found = store(self._work, new) if lists is None else extend(self._work, new, lists)
        self.stored = found["said"]


def stored_as_known(opened: Store, run: Callable[[Any], Any]) -> Any:
    """What `run` returns in a transaction of its own; None if it was rolled back, because a list is not as known."""
    try:
        return transaction_per_verb(opened.runtime).run(run, True)
    except RequirementMissed:
        return None


def put(opened: Store, id: str, version: str, *texts: str, known: KnownList | None = None, **more: Any) -> Any:
    """Store a checkpoint; how its list is stored then, None if it is not as known."""

    def run(work: Any) -> Any:
        states = KnowingStates(work)
        states.known = known
        values = {"said": (version, pieces(*texts)), "other": (version, Blob("text", texts[-1].encode())), **more}
        states.put("t", id, head=Blob("h", b"1"), versions={"said": version, "other": version}, values=values)
        return states.stored

    return stored_as_known(opened, run)


def add(opened: Store, id: str, version: str, base: KnownList, *texts: str, known: KnownList | None = None) -> Any:
    """Store a checkpoint whose list is `base` and more; how it is stored then, None if the list is another one."""

    def run(work: Any) -> Any:
        states = KnowingStates(work)
        states.known, states.added = known, (version, Addition(base, pieces(*texts)))
        states.put("t", id, head=Blob("h", b"1"), versions={"said": version})
        return states.stored

    return stored_as_known(opened, run)


def said(opened: Store, id: str | None = None) -> Any:
    found = opened.checkpoints.states.find("t", id=id)
    return None if found is None else found.values["said"]


def test_a_list_grows_from_the_known_one(opened: Store) -> None:
    known = put(opened, "1", "1", "a", "b")
    first = known
    for number, texts in enumerate(("abc", "abcdd", "abcddaf"), start=2):
        known = put(opened, str(number), str(number), *texts, known=known)
        assert known is not None
        assert said(opened) == pieces(*texts)
    assert said(opened, "1") == pieces("a", "b")
    assert put(opened, "5", "5", *"abcddaf").digest == known.digest != first.digest


def test_nothing_is_written_where_another_worker_was_faster(opened: Store) -> None:
    known = put(opened, "1", "1", "a", "b")
    assert put(opened, "2", "2", "a", "b", "x", known=known) is not None
    before = opened.checkpoints.threads.get("t")
    assert put(opened, "3", "3", "a", "b", "y", known=known, gone=("2", None)) is None
    assert said(opened) == pieces("a", "b", "x")
    assert opened.checkpoints.states.find("t", id="3") is None
    assert opened.checkpoints.states.values("t", {"other": "3", "said": "3"}) == {}
    assert opened.checkpoints.threads.get("t") == before
    assert put(opened, "3", "3", "a", "b", "y") is not None
    assert said(opened) == pieces("a", "b", "y")


def test_nothing_is_written_where_the_known_list_is_gone(opened: Store) -> None:
    known = put(opened, "1", "1", "a", "b")
    opened.checkpoints.threads.delete("t")
    assert put(opened, "2", "2", "a", "b", "x", known=known) is None
    assert opened.checkpoints.states.find("t") is None
    assert put(opened, "1", "1", "b", "a") is not None  # the same version with other pieces
    assert put(opened, "2", "2", "a", "b", "x", known=known) is None
    assert said(opened) == pieces("b", "a")


def test_a_put_that_is_tried_again_is_stored_once(opened: Store) -> None:
    known = put(opened, "1", "1", "a", "b")
    after = put(opened, "2", "2", "a", "b", "x", known=known)
    assert put(opened, "2", "2", "a", "b", "x", known=known) == after
    assert put(opened, "2", "2", "a", "b", "x") == after
    assert said(opened) == pieces("a", "b", "x")
    assert put(opened, "3", "3", "a", "b", "x", "y", known=after) is not None
    assert said(opened) == pieces("a", "b", "x", "y")


def test_what_does_not_begin_with_the_known_list_is_not_extended(opened: Store) -> None:
    known = put(opened, "1", "1", "a", "b")

    for texts in (("a",), ("b", "a", "c"), ("a", "x", "c")):
        new = NewState({"thread_id": "t", "namespace": ""}, {}, {"said": ("2", pieces(*texts))})
        assert growing(new, {"said": known}) is None


@pytest.mark.parametrize("reads_first", [False, True], ids=["known", "looked up"])
def test_what_was_added_is_enough(opened: Store, reads_first: bool) -> None:
    whole = ["a", "b"]
    last = known = put(opened, "1", "1", *whole)
    for number, texts in enumerate((("c",), ("d", "d"), (), ("a", "f")), start=2):
        last = add(opened, str(number), str(number), last, *texts, known=None if reads_first else last)
        whole += texts
        assert said(opened) == pieces(*whole)
    assert said(opened, "1") == pieces("a", "b")
    assert put(opened, "6", "6", *whole).digest == last.digest != known.digest


@pytest.mark.parametrize("reads_first", [False, True], ids=["known", "looked up"])
def test_nothing_is_added_to_another_list(opened: Store, reads_first: bool) -> None:
    base = put(opened, "1", "1", "a", "b")
    known = None if reads_first else base
    assert put(opened, "2", "2", "a", "b", "x") is not None
    before = opened.checkpoints.threads.get("t")
    assert add(opened, "3", "3", base, "y", known=known) is None
    assert opened.checkpoints.states.find("t", id="3") is None
    assert opened.checkpoints.states.values("t", {"said": "3"}) == {}
    opened.checkpoints.threads.delete("t")
    assert add(opened, "3", "3", base, "y", known=known) is None
    assert opened.checkpoints.states.find("t") is None
    assert before is not None


# A row of a thread that cannot be read: once the doctor has set it aside, verbs work on what can be assembled without it.


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
    assert {one.id: one.parent_id for one in grown.checkpoints.states.page(thread_id="t")}.get("4", "3") == "3"


def everything(store: Any) -> list[Any]:
    states = store.checkpoints.states
    return [(one.checkpoint.id, one.values, one.writes) for one in states.load(states.page(thread_id="t"))]


REPLACED = {
    "the digest of a piece": "checkpoint_pieces SET digest = 'nope' WHERE position = 1",
    "the digest of a list": "checkpoint_values SET digest = 7.5 WHERE channel = 'messages' AND version = '4'",
    "ranges of what is whole": "checkpoint_values SET spans_json = '[7]' WHERE channel = 'sum' AND version = '1'",
    "rebuilt channels": "checkpoint_states SET partial_json = '7.5' WHERE id = '3'",
}


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("spoilt", REPLACED)
def test_what_the_rest_of_a_row_says_is_replaced_and_nothing_is_taken_away(
    grown: Any, raw: Any, database_url: str, spoilt: str
) -> None:
    before, deltas = everything(grown), grown.checkpoints.states.history("t", "3", ["sum"])
    raw.rows(f"UPDATE {REPLACED[spoilt]}")
    with Store.open(database_url) as keeper:
        (finding,) = doctor(keeper, fix=True)
        assert (finding.code, finding.fixed) == ("unreadable", True)
        assert doctor(keeper) == []
    assert everything(grown) == before
    assert grown.checkpoints.states.history("t", "3", ["sum"]) == deltas
    with grown.begin() as tx:
        tx.checkpoints.threads.keep_latest("t")  # also deletes what no value names
        tx.checkpoints.states.put(
            "t", "5", head=HEAD, parent_id="4", versions={"messages": "5"}, values={"messages": ("5", [item(c) for c in "01234"])}
        )
    assert everything(grown)[0][1]["messages"] == [item(c) for c in "01234"]


INCOMPLETE = {
    "a piece is gone": "DELETE FROM checkpoint_pieces WHERE position = 2",
    "a piece is elsewhere": "UPDATE checkpoint_pieces SET position = 70 WHERE position = 2",
    "a value is empty": "UPDATE checkpoint_values SET data = NULL WHERE channel = 'sum' AND version = '4'",
    "a list has no ranges": "UPDATE checkpoint_values SET spans_json = NULL WHERE channel = 'messages' AND version = '4'",
}


@pytest.mark.parametrize("spoilt", INCOMPLETE)
def test_a_value_that_lacks_its_contents_is_named_and_set_aside(grown: Any, raw: Any, database_url: str, spoilt: str) -> None:
    raw.rows(INCOMPLETE[spoilt])
    with pytest.raises(StoreCorrupt):
        everything(grown)
    with Store.open(database_url) as keeper:
        found = doctor(keeper)
        assert {(one.code, one.subject.split()[0]) for one in found} == {("incomplete", "checkpoint_values")}
        assert all(one.fixed for one in doctor(keeper, fix=True))
        assert doctor(keeper) == []
    left = 2 if "piece" in spoilt else 3
    assert [id for id, *_ in everything(grown)] == [str(number) for number in range(left, 0, -1)]
