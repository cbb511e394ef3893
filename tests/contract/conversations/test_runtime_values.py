"""What a runtime dumps of its sessions, branches, messages and progressions comes back equal after every verb.

The dumps are real (see make_runtime_vectors.py); its classes take as an id whatever is a UUID, and nothing else.
"""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from persist.conversations.schemas import Branch, ConvMessage
from tests.contract.conversations.make_runtime_vectors import VECTORS
from tests.contract.conversations.making import shown

RUNTIMES: dict[str, Any] = json.loads(VECTORS.read_text())


@pytest.fixture(params=sorted(RUNTIMES))
def runtime(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The dumps of one version."""
    found: dict[str, Any] = RUNTIMES[request.param]
    return found


def at(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)


def in_db_form(element: dict[str, Any]) -> dict[str, Any]:
    """What a pile holds names its metadata otherwise than `to_dict(mode="db")` of the element itself."""
    renamed = {"node_metadata" if name == "metadata" else name: value for name, value in element.items()}
    return dict(sorted(renamed.items()))


def in_order(pile: dict[str, Any]) -> list[dict[str, Any]]:
    """What a pile holds, as its progression has it."""
    found = {one["id"]: one for one in pile["collections"]}
    return [found[id] for id in pile["progression"]["order"]]


def create(tx: Any, dumped: dict[str, Any], session_id: str) -> None:
    """A branch as its runtime has it, message by message."""
    pile = dumped["messages"]
    order = pile["progression"]
    tx.conversations.progressions.create(
        order["id"], created_at=at(order["created_at"]), name=order["name"], node_metadata=order["metadata"]
    )
    columns = {name: dumped[name] for name in ("id", "name", "user", "node_metadata")}
    tx.conversations.branches.create(session_id, created_at=at(dumped["created_at"]), progression_id=order["id"], **columns)
    for one in in_order(pile):
        tx.conversations.messages.record(dumped["id"], one)
    # a copy begins with a system message of its own, and repeats that of its source: the last one recorded is not the branch's
    tx.conversations.branches.set_system_message(dumped["id"], dumped["system"]["id"])


def branch_dict(tx: Any, id: str) -> dict[str, Any]:
    """The branch as its runtime dumps it, of what is stored."""
    conversations = tx.conversations
    branch: Branch = conversations.branches.get(id)
    messages: list[ConvMessage] = conversations.branches.history(id)
    system = conversations.messages.get(branch.system_msg_id)
    return {
        "id": branch.id,
        "created_at": branch.created_at.timestamp(),
        "user": branch.user,
        "name": branch.name,
        "node_metadata": branch.node_metadata,
        "collections": [in_db_form(one.to_dict()) for one in messages],
        "progression": progression_dict(tx, branch.progression_id),
        "system": in_db_form(system.to_dict()),
    }


def progression_dict(tx: Any, id: str) -> dict[str, Any]:
    row = tx.conversations.progressions.describe(id)
    said = {"id": row.id, "created_at": row.created_at.timestamp(), "name": row.name, "node_metadata": row.node_metadata}
    return dict(sorted({**said, "order": tx.conversations.progressions.get(id)}.items()))


def given(dumped: dict[str, Any]) -> dict[str, Any]:
    """The dump in the form of `branch_dict`."""
    pile = dumped["messages"]
    parts = {
        "collections": [in_db_form(one) for one in in_order(pile)],
        "progression": in_db_form(pile["progression"]),
        "system": in_db_form(dumped["system"]),
    }
    return {name: dumped[name] for name in ("id", "created_at", "user", "name", "node_metadata")} | parts


@pytest.fixture
def stored(store: Any, runtime: dict[str, Any]) -> dict[str, Any]:
    """Session and branches of the dumps, recorded; the dumps."""
    session = runtime["session"]
    with store.begin() as tx:
        columns = {name: session[name] for name in ("id", "name", "user", "node_metadata")}
        tx.conversations.sessions.create(created_at=at(session["created_at"]), **columns)
        for dumped in runtime["branches"]:
            create(tx, dumped, session["id"])
    return runtime


def test_a_session_with_its_branches_comes_back(other: Any, stored: dict[str, Any]) -> None:
    with other.read() as tx:
        session = tx.conversations.sessions.get(stored["session"]["id"])
        found = {name: getattr(session, name) for name in ("id", "name", "user", "node_metadata")}
        assert {**found, "created_at": session.created_at.timestamp(), "content": None, "embedding": None} == stored["session"]
        assert [branch_dict(tx, one["id"]) for one in stored["branches"]] == [given(one) for one in stored["branches"]]


def test_they_come_back_after_every_verb(store: Any, other: Any, stored: dict[str, Any]) -> None:
    main, copy = stored["branches"]
    with store.begin() as tx:
        conversations = tx.conversations
        conversations.messages.put_many(main["messages"]["collections"])
        conversations.messages.put(main["system"])
        conversations.branches.set_system_message(main["id"], main["system"]["id"])
        conversations.branches.update(main["id"], name="other")
        conversations.branches.update(main["id"], name=main["name"])
        conversations.branches.update_metadata(main["id"], {"a": 1})
        conversations.branches.update_metadata(main["id"], {"a": None})
        conversations.branches.set_status(main["id"], "running")
        conversations.branches.fork(main["id"], at=2)
        order = main["messages"]["progression"]
        conversations.progressions.replace(order["id"], order["order"][:2])
        for id in order["order"]:
            conversations.progressions.append(order["id"], id)
        conversations.branches.finalize(main["id"], "completed")
        conversations.branches.delete(copy["id"])
    with other.read() as tx:
        assert branch_dict(tx, main["id"]) == given(main)


def test_a_progression_comes_back(store: Any, other: Any, stored: dict[str, Any]) -> None:
    wanted = stored["progression"]
    with store.begin() as tx:
        said = {"name": wanted["name"], "node_metadata": wanted["node_metadata"], "created_at": at(wanted["created_at"])}
        assert tx.conversations.progressions.create(wanted["id"], ids=wanted["order"], **said) == wanted["id"]
    with other.read() as tx:
        assert progression_dict(tx, wanted["id"]) == dict(sorted(wanted.items()))


def test_whole_messages_are_sent_and_come_out_of_the_inbox(store: Any, other: Any, stored: dict[str, Any]) -> None:
    reader = stored["branches"][1]["id"]
    with store.begin() as tx:
        for one in stored["sent"]:
            tx.conversations.exchange.post(one)
    assert [one.to_dict() for one in other.conversations.exchange.inbox(reader).items] == stored["sent"]


def test_a_copy_says_of_what_it_is_one(store: Any, stored: dict[str, Any]) -> None:
    main, copy = stored["branches"]
    with store.begin() as tx:
        branches = tx.conversations.branches
        assert (branches.get(main["id"]).clone_of, branches.get(copy["id"]).clone_of) == (None, main["id"])
        assert {one.clone_of for one in branches.history(copy["id"])} == {one.id for one in branches.history(main["id"])}
        fork = branches.fork(copy["id"])
        assert (fork.clone_of, fork.parent_branch_id) == (None, copy["id"])
        assert branches.get(copy["id"]).node_metadata == copy["node_metadata"]
    assert shown(store, fork.id) == shown(store, copy["id"])


def test_what_is_minted_is_an_id_of_the_runtime(store: Any) -> None:
    """Its classes read nothing else; and they sort as they were minted."""
    with store.begin() as tx:
        conversations = tx.conversations
        session = conversations.sessions.create()
        branch = conversations.branches.create(session.id)
        fork = conversations.branches.fork(branch.id)
        sent = conversations.exchange.send(sender=branch.id, recipient=None, content="hi")
        minted = [session.id, session.progression_id, branch.id, branch.progression_id, fork.id, fork.progression_id, sent.id]
        minted.append(conversations.progressions.create())
    assert [str(UUID(id)) for id in minted] == minted
    assert len(set(minted)) == len(minted)
    assert session.id < branch.id < fork.id < sent.id < minted[-1]
