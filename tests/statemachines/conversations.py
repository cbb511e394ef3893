"""Sessions with branches that fork, messages that are shared, and letters between branches."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.statemachines.machine import UNSAID, Machine, Refused

SESSIONS, BRANCHES = st.sampled_from(["a", "b"]), st.integers(0, 4)
MESSAGES, OWNERS = st.sampled_from(["m1", "m2", "m3"]), st.sampled_from(["x", "y"])
CONTENT = st.sampled_from([0, "", "\x00\ud83d", {"k": [1e16]}, None])


class Conversations(Machine):
    domain = "conversations"

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, list[str]] = {}
        self.status: dict[str, str] = {}
        self.branches: dict[str, tuple[str, list[str]]] = {}
        """By id: the session, and what is shown."""
        self.own: dict[str, set[str]] = {}
        """What a branch may not hold twice: its own items, not what it inherited."""
        self.messages: dict[str, Any] = {}
        self.lists: dict[str, list[str]] = {}
        self.letters: list[tuple[str, str | None, str]] = []
        self.read: dict[str, int] = {}
        for store in self.stores:
            with store.begin() as tx:  # the count of letters is a row that is always there
                assert tx.conversations.exchange.unread_count("x") == 0

    def pick(self, number: int) -> str:
        known = [*self.branches, "nowhere"]
        return known[number % len(known)]

    @rule(id=SESSIONS, status=st.sampled_from(["running", "no"]))
    def create(self, id: str, status: str) -> None:
        def expect(got: Any) -> Any:
            if status == "no":
                raise Refused("InvalidValue")
            self.sessions.setdefault(id, [])
            self.status.setdefault(id, status)
            return UNSAID

        self.do("conversations.sessions.create", id=id, status=status, expect=expect)

    @rule(id=SESSIONS, branch=st.sampled_from(["p", "q"]))
    def open_branch(self, id: str, branch: str) -> None:
        def expect(got: Any) -> Any:
            if id not in self.sessions:
                raise Refused("NotFound")
            if branch not in self.branches:
                self.branches[branch], self.own[branch] = (id, []), set()
            return UNSAID

        self.do("conversations.branches.create", id, id=branch, expect=expect)

    @rule(branch=BRANCHES, at=st.none() | st.integers(0, 3))
    def fork(self, branch: int, at: int | None) -> None:
        id = self.pick(branch)
        if len(self.branches) > 4:
            return

        def expect(got: Any) -> Any:
            if id not in self.branches:
                raise Refused("NotFound")
            session, shown = self.branches[id]
            if at is not None and at > len(shown):
                raise Refused("InvalidValue")
            self.branches[got.id], self.own[got.id] = (session, shown[:at]), set()
            return UNSAID

        self.do("conversations.branches.fork", id, at=at, expect=expect)

    @rule(branch=BRANCHES, id=MESSAGES, content=CONTENT)
    def record(self, branch: int, id: str, content: Any) -> None:
        place = self.pick(branch)

        def expect(got: Any) -> Any:
            if content is None:
                raise Refused("InvalidValue")
            if place not in self.branches:
                raise Refused("NotFound")
            session, shown = self.branches[place]
            self.messages[id] = content
            if id not in self.own[place]:
                self.own[place].add(id)
                shown.append(id)
            if id not in self.sessions[session]:
                self.sessions[session].append(id)
            return UNSAID

        message = {"id": id, "created_at": 1_700_000_000, "role": "user", "content": content}
        self.do("conversations.messages.record", place, message, expect=expect)

    @rule(id=MESSAGES)
    def delete_message(self, id: str) -> None:
        def expect(got: Any) -> Any:
            named = [*self.sessions.values(), *self.lists.values(), *(sorted(own) for own in self.own.values())]
            if any(id in ids for ids in named):
                raise Refused("Conflict")
            return self.messages.pop(id, None) is not None

        self.do("conversations.messages.delete", id, expect=expect)

    @rule(branch=BRANCHES)
    def delete_branch(self, branch: int) -> None:
        id = self.pick(branch)

        def expect(got: Any) -> Any:
            if id not in self.branches:
                return False
            self.remove([id])
            return True

        self.do("conversations.branches.delete", id, expect=expect)

    @rule(id=SESSIONS)
    def delete_session(self, id: str) -> None:
        def expect(got: Any) -> Any:
            if self.sessions.pop(id, None) is None:
                return False
            del self.status[id]
            self.remove([branch for branch, (session, _) in self.branches.items() if session == id])
            return True

        self.do("conversations.sessions.delete", id, expect=expect)

    def remove(self, gone: list[str]) -> None:
        """Forks keep what they show; what they inherited from one that is gone is now their own."""
        for id in gone:
            del self.branches[id], self.own[id]

    @rule(id=SESSIONS, status=st.sampled_from(["completed", "failed", "running"]))
    def end(self, id: str, status: str) -> None:
        def expect(got: Any) -> Any:
            if id not in self.sessions:
                raise Refused("NotFound")
            if self.status[id] != "running":
                return False
            if status == "running":
                raise Refused("TransitionError")
            self.status[id] = status
            return True

        self.do("conversations.sessions.set_status", id, status, expected=["running"], expect=expect)

    @rule(ids=st.lists(MESSAGES, max_size=3), id=MESSAGES, verb=st.sampled_from(["create", "append", "replace"]))
    def list_ids(self, ids: list[str], id: str, verb: str) -> None:
        def expect(got: Any) -> Any:
            known = self.lists.get("l")
            if verb == "create":
                self.lists.setdefault("l", list(ids))
                return "l"
            if verb == "append":
                if known is None or id in known:
                    return False
                known.append(id)
                return True
            if known is None:
                raise Refused("NotFound")
            self.lists["l"] = list(ids)
            return None

        if verb == "create":
            self.do("conversations.progressions.create", "l", ids=ids, expect=expect)
        elif verb == "append":
            self.do("conversations.progressions.append", "l", id, expect=expect)
        else:
            self.do("conversations.progressions.replace", "l", ids, expect=expect)

    @rule(id=MESSAGES, index=st.integers(0, 4))
    def insert_id(self, id: str, index: int) -> None:
        def expect(got: Any) -> Any:
            known = self.lists.get("l")
            if known is None:
                return False
            if index > len(known):
                raise Refused("InvalidValue")
            if id in known:
                return False
            known.insert(index, id)
            return True

        self.do("conversations.progressions.insert", "l", index, id, expect=expect)

    @rule(id=MESSAGES)
    def remove_id(self, id: str) -> None:
        def expect(got: Any) -> Any:
            known = self.lists.get("l", [])
            if id not in known:
                return False
            self.lists["l"] = [one for one in known if one != id]
            return True

        self.do("conversations.progressions.remove", "l", id, expect=expect)

    @rule(sender=OWNERS, recipient=st.none() | OWNERS)
    def send(self, sender: str, recipient: str | None) -> None:
        def expect(got: Any) -> Any:
            self.letters.append((sender, recipient, got.id))
            return UNSAID

        self.do("conversations.exchange.send", sender=sender, recipient=recipient, content="hi", expect=expect)

    @rule(owner=OWNERS, at=st.integers(0, 3))
    def mark(self, owner: str, at: int) -> None:
        place = at % len(self.letters) if self.letters else None
        id = "none" if place is None else self.letters[place][2]

        def expect(got: Any) -> Any:
            if place is None or not self.is_for(owner, place) or place < self.read.get(owner, 0):
                return False
            self.read[owner] = place + 1
            return True

        self.do("conversations.exchange.mark_read", owner, id, expect=expect)

    def is_for(self, owner: str, place: int) -> bool:
        sender, recipient, _ = self.letters[place]
        return recipient == owner or (recipient is None and sender != owner)

    def seen(self, tx: Any) -> Any:
        conversations = tx.conversations
        sessions = {one.id: one for one in conversations.sessions.list().items}
        branches = [branch for id in sorted(sessions) for branch in conversations.branches.list(id)]
        return {
            "sessions": {
                id: (one.status.value, conversations.progressions.get(one.progression_id)) for id, one in sessions.items()
            },
            "branches": {one.id: (one.session_id, [m.id for m in conversations.branches.history(one.id)]) for one in branches},
            "messages": {id: found.content for id, found in conversations.messages.get_many(["m1", "m2", "m3"]).items()},
            "list": conversations.progressions.get("l"),
            "unread": {owner: [one.id for one in conversations.exchange.inbox(owner).items] for owner in ("x", "y")},
        }

    def expected(self) -> Any:
        return {
            "sessions": {id: (self.status[id], ids) for id, ids in self.sessions.items()},
            "branches": self.branches,
            "messages": self.messages,
            "list": self.lists.get("l", []),
            "unread": {
                owner: [
                    letter[2]
                    for place, letter in enumerate(self.letters)
                    if self.is_for(owner, place) and place >= self.read.get(owner, 0)
                ]
                for owner in ("x", "y")
            },
        }
