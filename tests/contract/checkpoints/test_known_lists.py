"""A put that remembers how its lists are stored writes nothing where that is no longer so."""

from typing import Any

import pytest

from persist import Store
from persist.checkpoints.known_lists import KnownList
from persist.checkpoints.schemas import Blob
from persist.checkpoints.storing import extend, growing, new_state, store
from persist.db.transactions.repository import Verb
from persist.store.transaction import transaction_per_verb


def pieces(*texts: str) -> list[Blob]:
    return [Blob("text", text.encode()) for text in texts]


@pytest.fixture
def opened(database_url: str) -> Any:
    with Store.open(database_url) as opened:
        yield opened


def put(opened: Store, id: str, version: str, *texts: str, known: KnownList | None = None, **more: Any) -> Any:
    """Store a checkpoint; how its list is stored then, None if it is not as known."""

    def run(work: Any) -> Any:
        with Verb(work, "CheckpointStates.put", writes=True):
            values = {"said": (version, pieces(*texts)), "other": (version, Blob("text", texts[-1].encode())), **more}
            new = new_state(work, "t", id, head=Blob("h", b"1"), versions={"said": version, "other": version}, values=values)
            if known is None:
                return store(work, new)["said"]
            lists = growing(new, {"said": known})
            assert lists is not None
            found = extend(work, new, lists)
            return None if found is None else found["said"]

    return transaction_per_verb(opened.runtime).run(run, True)


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

    def planned(work: Any) -> list[Any]:
        found = []
        for texts in (("a",), ("b", "a", "c"), ("a", "x", "c")):
            values = {"said": ("2", pieces(*texts))}
            found.append(growing(new_state(work, "t", "2", head=Blob("h", b"1"), values=values), {"said": known}))
        return found

    assert transaction_per_verb(opened.runtime).run(planned, False) == [None] * 3
