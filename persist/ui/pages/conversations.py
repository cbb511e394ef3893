"""Conversations: sessions, their branches as a drawn tree, and what a branch shows of its own and of those it was forked from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persist.cli.conversations import conversations, said_by
from persist.conversations.schemas import Branch, ConvMessage, ConvSession, InvocationKind, SourceKind, Status
from persist.errors import Conflict, NotFound, StoreCorrupt, UnreadableRow
from persist.store.transaction import Transaction
from persist.ui.addresses import with_query
from persist.ui.charts import Lane
from persist.ui.views import Section, View, Visit, found

MESSAGES = 100
"""How many messages of a branch a page has, from the newest back."""
_BRANCHES = 60
"""How many branches a page draws."""
_ITEMS = 30
"""How many messages of an inbox or an outbox a page has."""
_COUNTED = 12
"""How many branches a page counts the messages of, so that each line ends where its branch does."""
_ALL = "all"


def _wanted(visit: Visit) -> dict[str, Any]:
    kinds = {"status": Status, "invocation_kind": InvocationKind, "source_kind": SourceKind}
    words = {name: visit.one_of(name, kind) for name, kind in kinds.items()}
    return {**words, "agent_name": visit.text("agent_name"), "playbook_name": visit.text("playbook_name")}


def _list(visit: Visit) -> dict[str, Any]:
    page = visit.tx.conversations.sessions.list(**_wanted(visit), since=visit.since(), **visit.page())
    return {
        "title": "Conversations",
        "page": page,
        "statuses": list(Status),
        "kinds": list(InvocationKind),
        "sources": list(SourceKind),
        "refresh": not visit.text("after"),
    }


def _show(visit: Visit) -> dict[str, Any]:
    tx, id = visit.tx, visit.values["id"]
    session = tx.conversations.sessions.get(id)
    branches = _ordered(tx.conversations.branches.list(id))
    chosen = _chosen(visit, branches)
    listed = _pool(tx, session, visit) if chosen is None else _history(tx, chosen, branches, visit)
    drawn = branches[:_BRANCHES]
    return {
        "title": session.name or id,
        "session": session,
        "branches": drawn,
        "more_branches": len(branches) - len(drawn),
        "chosen": chosen,
        "lanes_of": _lanes(tx, drawn, chosen, visit),
        "listed": listed,
        "history": tx.conversations.sessions.transitions(id),
        "branch_history": [] if chosen is None else tx.conversations.branches.transitions(chosen.id),
        "boxes": [] if chosen is None else _boxes(tx, chosen, visit),
        "unread": None if chosen is None else tx.conversations.exchange.unread_count(chosen.id),
        "names": {branch.id: branch.name or branch.id for branch in branches},
        "as_json": with_query(visit.path, {**visit.query, "branch": chosen.id if chosen else None, "format": "json"}),
        "refresh": session.status is Status.RUNNING and not visit.text("before"),
    }


def _chosen(visit: Visit, branches: Sequence[Branch]) -> Branch | None:
    """The branch that is asked for, the first one where nothing is, None for the pool of all. Raises NotFound."""
    wanted = visit.text("branch")
    if wanted == _ALL or (wanted is None and not branches):
        return None
    if wanted is None:
        return branches[0]
    named = [one for one in branches if one.id == wanted] or [one for one in branches if one.name == wanted]
    return found(next(iter(named), None), "branch", wanted)


def _branch(visit: Visit) -> str | None:
    """The branch that is asked for by its id or name, None for the pool of all."""
    wanted = visit.text("branch")
    return None if wanted == _ALL else wanted


# -- messages


@dataclass(frozen=True, slots=True)
class ShownItem:
    """A message of a branch. `origin`: the branch that it is inherited from, None for one of its own."""

    message: ConvMessage
    said: Any
    origin: str | None


@dataclass(frozen=True, slots=True)
class Listed:
    """Messages of a branch or a pool. `before`: the cursor of older ones; `length`: how many there are, if that is known."""

    items: Sequence[ShownItem]
    before: int | None
    length: int | None
    problem: str | None = None


def _history(tx: Transaction, branch: Branch, branches: Sequence[Branch], visit: Visit) -> Listed:
    inherited = max(0, branch.forked_at_ord or 0)
    try:
        own = tx.conversations.progressions.get(branch.progression_id)
        end = _end(visit, inherited + len(own))
        messages = tx.conversations.branches.history(branch.id, limit=MESSAGES, before=end)
    except (Conflict, NotFound, StoreCorrupt, UnreadableRow) as error:
        return Listed([], None, None, str(error))
    mine, by_id = set(own), {one.id: one for one in branches}
    first = max(0, end - MESSAGES)
    items = [
        ShownItem(one, said_by(one.content), None if one.id in mine else _origin(branch, by_id, first + place))
        for place, one in enumerate(messages)
    ]
    return Listed(items, first or None, inherited + len(own))


def _end(visit: Visit, length: int) -> int:
    before = visit.text("before")
    return length if before is None else min(length, visit.number("before", 1, 2**31))


def _origin(branch: Branch, by_id: Mapping[str, Branch], place: int) -> str:
    """The branch whose own the item at a place is: that of a line of parents which begins before it."""
    seen = {branch.id}
    while branch.parent_branch_id is not None and place < (branch.forked_at_ord or 0):
        parent = by_id.get(branch.parent_branch_id)
        if parent is None or parent.id in seen:
            return branch.parent_branch_id
        branch = parent
        seen.add(branch.id)
    return branch.id


def _pool(tx: Transaction, session: ConvSession, visit: Visit) -> Listed:
    ids = tx.conversations.progressions.get(session.progression_id)
    end = _end(visit, len(ids))
    first = max(0, end - MESSAGES)
    by_id = tx.conversations.messages.get_many(ids[first:end])
    items = [ShownItem(by_id[id], said_by(by_id[id].content), None) for id in ids[first:end] if id in by_id]
    return Listed(items, first or None, len(ids))


def _boxes(tx: Transaction, branch: Branch, visit: Visit) -> list[tuple[str, list[ShownItem], str | None]]:
    """The inbox and the outbox of a branch, a page of each, the cursors in queries of their own."""
    exchange = tx.conversations.exchange
    inbox = exchange.inbox(branch.id, unread_only=False, limit=_ITEMS, after=visit.text("inbox"))
    outbox = exchange.outbox(branch.id, limit=_ITEMS, after=visit.text("outbox"))
    return [
        (name, [ShownItem(one, said_by(one.content), None) for one in page.items], page.cursor)
        for name, page in (("inbox", inbox), ("outbox", outbox))
    ]


# -- branches


def _ordered(branches: Sequence[Branch]) -> list[Branch]:
    """Each branch below the one that it was forked from, and its own forks below it; the rest, in circles, at the end."""
    by_id, forks = {one.id for one in branches}, dict[str | None, list[Branch]]()
    for one in branches:
        forks.setdefault(one.parent_branch_id if one.parent_branch_id in by_id else None, []).append(one)
    ordered, left = dict[str, Branch](), forks.get(None, [])[::-1]
    while left:
        branch = left.pop()
        ordered[branch.id] = branch
        left += [one for one in forks.get(branch.id, [])[::-1] if one.id not in ordered]
    return [*ordered.values(), *(one for one in branches if one.id not in ordered)]


def _lanes(tx: Transaction, branches: Sequence[Branch], chosen: Branch | None, visit: Visit) -> list[Lane]:
    """The lines of a drawn tree. Where a branch ends is counted of a few; of many it stays open."""
    places = {one.id: place for place, one in enumerate(branches)}
    counted = len(branches) <= _COUNTED
    return [
        Lane(
            one.name or one.id,
            places.get(one.parent_branch_id or "", -1),
            max(0, one.forked_at_ord or 0),
            max(0, one.forked_at_ord or 0) + len(tx.conversations.progressions.get(one.progression_id)) if counted else None,
            _words(one),
            with_query(visit.path, {"branch": one.id}),
            one is chosen,
        )
        for one in branches
    ]


def _words(one: Branch) -> str:
    origin = "" if one.parent_branch_id is None else f", forked from {one.parent_branch_id} after {one.forked_at_ord} messages"
    return f"{one.name or one.id}: {one.status or 'no status'}{origin}"


SECTION = Section(
    "Conversations",
    "/conversations",
    views=(
        View(
            "/conversations",
            "conversations.html",
            _list,
            lambda visit: conversations.answer("ls", visit.tx, **_wanted(visit), since=visit.since(), **visit.page()),
        ),
        View(
            "/conversations/{id}",
            "conversation.html",
            _show,
            lambda visit: conversations.answer("show", visit.tx, session=visit.values["id"], branch=_branch(visit), limit=None),
        ),
    ),
)
