"""The published array of a progression: what a program that reads `collection` sees, and when it catches up."""

from contextlib import suppress
from typing import Any

from persist import Store
from persist.conversations.storage.progressions import FOLD_EVERY
from persist.settings import Settings
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    append,
    array,
    items,
    make_branch,
    make_progression,
    message,
    numbered,
    put_many,
    replace,
    say,
    session_of,
)


def test_a_new_progression_shows_all_of_it(store: Any, raw: Raw) -> None:
    assert array(raw, make_progression(store, ["b", "a", "b", 'quo"te', "漢"])) == ["b", "a", "b", 'quo"te', "漢"]
    assert array(raw, make_progression(store)) == []


def test_the_array_catches_up_every_64_appends(store: Any, raw: Raw) -> None:
    progression, ids = make_progression(store), numbered(3 * FOLD_EVERY)
    assert FOLD_EVERY == 64
    for count, id in enumerate(ids, start=1):
        append(store, progression, id)
        assert array(raw, progression) == ids[: count // 64 * 64]
    assert items(store, progression) == ids


def test_a_long_array_catches_up_when_a_sixteenth_of_it_is_new(store: Any, raw: Raw) -> None:
    """Looked at every 64 places: a sixteenth of 1,600 is 100, and the next place to look is 128 further."""
    ids = numbered(1600 + 128)
    progression = make_progression(store, ids[:1600])
    append(store, progression, *ids[1600:-1])
    assert array(raw, progression) == ids[:1600]
    assert items(store, progression) == ids[:-1]
    append(store, progression, ids[-1])
    assert array(raw, progression) == ids


def test_a_batch_counts_as_so_many_appends(store: Any, raw: Raw) -> None:
    progression, ids = make_progression(store), numbered(200)
    put_many(store, [message(id) for id in ids[:63]], progression_ids=[progression])
    assert array(raw, progression) == []
    put_many(store, [message(id) for id in ids[:64]], progression_ids=[progression])
    assert array(raw, progression) == ids[:64]
    put_many(store, [message(id) for id in ids], progression_ids=[progression])
    assert array(raw, progression) == ids


def test_what_was_there_already_counts_for_nothing(store: Any, raw: Raw) -> None:
    progression = make_progression(store, ["a"])
    append(store, progression, *["a"] * 200, "b", *["b"] * 200)
    assert array(raw, progression) == ["a"]


def test_replacing_shows_at_once(store: Any, raw: Raw) -> None:
    progression = make_progression(store, numbered(100))
    append(store, progression, "x")
    for ids in (["b", "a", "b"], [], ["z"]):
        replace(store, progression, ids)
        assert array(raw, progression) == ids


def test_the_end_of_a_branch_shows_all_of_it(store: Any, raw: Raw) -> None:
    branch = make_branch(store)
    say(store, branch.id, "a", "b")
    assert array(raw, branch.progression_id) == []
    assert store.conversations.branches.finalize(branch.id, "completed")
    assert array(raw, branch.progression_id) == ["a", "b"]


def test_a_status_shows_all_of_the_pool(store: Any, raw: Raw) -> None:
    branch = make_branch(store)
    pool = session_of(store, branch.session_id).progression_id
    say(store, branch.id, "a", "b")
    for status, more in (("running", "c"), ("completed", "d")):
        assert store.conversations.sessions.set_status(branch.session_id, status)
        shown = array(raw, pool)
        assert shown == items(store, pool)
        say(store, branch.id, more)
        assert array(raw, pool) == shown
    assert items(store, pool) == ["a", "b", "c", "d"]


def test_closing_a_store_shows_all_that_it_appended(open_store: Any, store: Any, raw: Raw) -> None:
    writer = open_store()
    branch, plain = make_branch(writer), make_progression(writer)
    pool = session_of(writer, branch.session_id).progression_id
    say(writer, branch.id, "a", "b")
    append(writer, plain, "c")
    put_many(writer, [message("d")], progression_ids=[plain])
    elsewhere = make_progression(store)
    append(store, elsewhere, "e")
    append(store, plain, "of another store")
    progressions = [branch.progression_id, pool, plain]
    assert [array(raw, id) for id in progressions] == [[], [], []]
    writer.close()
    assert [array(raw, id) for id in progressions] == [["a", "b"], ["a", "b"], ["c", "d", "of another store"]]
    assert array(raw, elsewhere) == []
    writer.close()
    store.close()
    assert array(raw, elsewhere) == ["e"]


def test_closing_folds_what_is_left_and_nothing_that_failed(open_store: Any, store: Any, raw: Raw) -> None:
    writer = open_store()
    kept, gone = make_progression(writer, ["a"]), make_progression(writer, ["a"])
    append(writer, gone, "b")
    append(writer, kept, *numbered(64))  # folded by itself
    with suppress(InterruptedError), writer.begin() as tx:
        tx.conversations.progressions.append(kept, "rolled back")
        raise InterruptedError
    replace(store, gone, [])
    raw.rows("DELETE FROM progressions WHERE id = ?", gone)
    writer.close()
    assert array(raw, kept) == ["a", *numbered(64)]
    assert raw.count("progressions") == 1


def test_closing_a_store_that_appended_nothing_writes_nothing(open_store: Any, statements: list[str], store: Any) -> None:
    make_progression(store, ["a"])
    reader = open_store()
    items(reader, make_progression(reader, ["b"]))
    statements.clear()
    reader.close()
    assert [statement for statement in statements if "progressions" in statement] == []


def test_an_array_may_be_larger_than_a_value_that_callers_give(sqlite_url: str, open_raw: Any) -> None:
    ids = [f"{n:06}" + "x" * 594 for n in range(200)]
    store = Store.open(sqlite_url, settings=Settings(max_json_bytes=100_000))
    raw = open_raw(sqlite_url)
    made, grown, replaced = (make_progression(store, some) for some in (ids, ids[:1], []))
    replace(store, replaced, ids)
    append(store, grown, *ids[1:])
    store.close()
    assert all(array(raw, progression) == ids for progression in (made, grown, replaced))
