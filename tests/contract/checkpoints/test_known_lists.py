"""A put that remembers how its lists are stored writes nothing where that is no longer so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from persist import Store
from persist.db.changes.batch import RequirementMissed
from persist.framework_state.checkpoints.schemas import Blob
from persist.framework_state.checkpoints.states import CheckpointStates
from persist.framework_state.checkpoints.storing import NewState, extend, growing, store
from persist.framework_state.checkpoints.values import Addition, KnownList
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
