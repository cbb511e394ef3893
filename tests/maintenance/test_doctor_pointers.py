"""`maintenance.doctor` on fork pointers that other programs wrote where they do not count."""

import json
from typing import Any

from persist import Store
from persist.maintenance import doctor
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.filled import by_code
from tests.schema.places import Place


def _branches(store: Store) -> None:
    """A branch with three messages, and one without."""
    with store.begin() as tx:
        conversations = tx.conversations
        conversations.sessions.create(id="s")
        for id in ("main", "fork"):
            conversations.branches.create("s", id=id, node_metadata={"model": "m"})
        for id in ("m1", "m2", "m3"):
            conversations.messages.record("main", {"id": id, "created_at": 1.0, "role": "user", "content": id})
        conversations.messages.record("fork", {"id": "own", "created_at": 1.0, "role": "user", "content": "own"})


def _point(url: str, id: str, parent: Any, inherited: Any) -> None:
    """As others write it."""
    place = Place(url)
    said = json.dumps({"parent_branch_id": parent, "forked_at_ord": inherited})
    place.run(f"UPDATE {place.named('branches')} SET node_metadata = '{said}' WHERE id = '{id}'")


def _shown(store: Store, id: str) -> list[str]:
    with store.read() as tx:
        return [one.id for one in tx.conversations.branches.history(id)]


def test_fork_pointers_that_others_wrote_are_adopted(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        _branches(store)
        assert doctor(store) == []
        _point(database_url, "fork", "main", 2)
        (found,) = doctor(store)
        assert (found.code, found.severity, found.subject, found.fixed) == ("branch_pointers", "warning", "branch fork", False)
        assert _shown(store, "fork") == ["own"]
        assert by_code(doctor(store, fix=True), "branch_pointers").fixed
        assert doctor(store) == []
        assert _shown(store, "fork") == ["m1", "m2", "own"]


@each(
    ("parent", "inherited", "why"),
    [
        ("gone", 1, "names no branch"),
        ("fork", 1, "descends from it"),
        ("main", 4, "no more than 3 items"),
        ("main", -1, "no place"),
        ("main", None, "no place"),
        (7, 1, "no place"),
        (None, 1, "no place"),
    ],
)
def test_pointers_that_cannot_be_shown_are_told_and_left(
    database_url: str, clock: FrozenClock, parent: Any, inherited: Any, why: str
) -> None:
    with Store.open(database_url, clock=clock) as store:
        _branches(store)
        _point(database_url, "fork", parent, inherited)
        (found,) = doctor(store, fix=True)
        assert (found.code, found.subject, found.fixed) == ("branch_pointers", "branch fork", False)
        assert why in found.message
        assert _shown(store, "fork") == ["own"]


def test_a_branch_that_repeats_what_it_inherits_is_left(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        _branches(store)
        with store.begin() as tx:
            tx.conversations.progressions.replace(tx.conversations.branches.get("fork").progression_id, ["m1", "m2", "own"])
        _point(database_url, "fork", "main", 2)
        (found,) = doctor(store, fix=True)
        assert ("begin with them already" in found.message, found.fixed) == (True, False)
        assert _shown(store, "fork") == ["m1", "m2", "own"]


def test_columns_count_where_the_metadata_differs(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        _branches(store)
        with store.begin() as tx:
            tx.conversations.branches.fork("main", at=1, new_id="f")
        _point(database_url, "f", "main", 2)
        place = Place(database_url)
        place.run(f"UPDATE {place.named('branches')} SET parent_branch_id = 'gone', forked_at_ord = 1 WHERE id = 'fork'")
        found = {one.subject: one for one in doctor(store, fix=True)}
        assert set(found) == {"branch f", "branch fork"}
        assert "the columns, which count" in found["branch f"].message
        assert "'gone', which is gone" in found["branch fork"].message
        assert _shown(store, "f") == ["m1"]
