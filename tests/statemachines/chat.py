"""Chats: messages said, queued, hidden and forked, and answers that stream in."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.errors import PersistError
from tests.statemachines.machine import UNSAID, Machine, Refused

SESSIONS, MESSAGES, PICKS = st.sampled_from(["a", "b"]), st.sampled_from(["m1", "m2", "m3"]), st.integers(0, 5)
WORDS = st.sampled_from(["", "a", "\x00", "\ud83d", "é\u2028"])


@dataclass
class Message:
    id: str
    role: str
    text: str
    state: str = "shown"
    """Or hidden, queued, cancelled."""


@dataclass
class Session:
    messages: list[Message] = field(default_factory=list)
    archived: bool = False

    def those(self, *states: str) -> list[Message]:
        return [one for one in self.messages if one.state in states]


class Chat(Machine):
    domain = "chat"

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, Session] = {}
        self.turns = 0

    def found(self, id: str) -> tuple[Session, Message] | None:
        return next(((session, one) for session in self.sessions.values() for one in session.messages if one.id == id), None)

    @rule(id=SESSIONS)
    def create(self, id: str) -> None:
        def expect(got: Any) -> Any:
            if id in self.sessions:
                raise Refused("Conflict")
            self.sessions[id] = Session()
            return UNSAID

        self.do("chat.sessions.create", agent="build", model={"model_id": "m"}, id=id, expect=expect)

    @rule(id=SESSIONS, verb=st.sampled_from(["delete", "archive", "unarchive"]))
    def change(self, id: str, verb: str) -> None:
        def expect(got: Any) -> Any:
            if id not in self.sessions:
                raise Refused("NotFound")
            if verb == "delete":
                del self.sessions[id]
            else:
                self.sessions[id].archived = verb == "archive"
            return None

        self.do(f"chat.sessions.{verb}", id, expect=expect)

    @rule(session=SESSIONS, id=MESSAGES, role=st.sampled_from(["user", "assistant", "tool"]), words=WORDS)
    def say(self, session: str, id: str, role: str, words: str) -> None:
        def expect(got: Any) -> Any:
            if role == "tool":
                raise Refused("InvalidValue")
            if session not in self.sessions:
                raise Refused("NotFound")
            found = self.found(id)
            if found is None:
                self.sessions[session].messages.append(Message(id, role, words))
            elif found[0] is not self.sessions[session] or (found[1].role, found[1].text) != (role, words):
                raise Refused("Conflict")
            return UNSAID

        parts = [{"type": "text", "text": words}]
        self.do("chat.messages.append", session, role=role, parts=parts, id=id, expect=expect)

    @rule(session=SESSIONS, id=MESSAGES, words=WORDS, again=st.booleans())
    def post(self, session: str, id: str, words: str, again: bool) -> None:
        """A browser posts one message: a new question, one to be answered again, or an edited one."""

        def expect(got: Any) -> Any:
            if session not in self.sessions:
                raise Refused("NotFound")
            mine, found = self.sessions[session].messages, self.found(id)
            if found is None:
                mine.append(Message(id, "user", words))
                return UNSAID
            if found[0] is not self.sessions[session] or found[1].state in ("hidden", "cancelled"):
                raise Refused("Conflict")
            if found[1].state == "queued":
                return UNSAID
            if found[1].role != "user":
                raise Refused("InvalidValue")
            if found[1].text != words or not again:
                for following in mine[mine.index(found[1]) + 1 :]:
                    following.state = "hidden" if following.state == "shown" else following.state
            found[1].text = words
            return UNSAID

        posted = [{"id": id, "role": "user", "parts": [{"type": "text", "text": words}]}]
        self.do("chat.messages.sync", session, posted, trigger="submit-message" if again else None, expect=expect)

    @rule(id=MESSAGES)
    def remove(self, id: str) -> None:
        def expect(got: Any) -> Any:
            found = self.found(id)
            if found is None:
                raise Refused("NotFound")
            found[0].messages.remove(found[1])
            return None

        self.do("chat.messages.delete", id, expect=expect)

    @rule(session=SESSIONS, id=MESSAGES, words=WORDS)
    def enqueue(self, session: str, id: str, words: str) -> None:
        """The same id with the same words is the message that is there."""

        def expect(got: Any) -> Any:
            if session not in self.sessions:
                raise Refused("NotFound")
            found = self.found(id)
            if found is None:
                self.sessions[session].messages.append(Message(id, "user", words, "queued"))
            elif found[0] is not self.sessions[session] or (found[1].role, found[1].text) != ("user", words):
                raise Refused("Conflict")
            return UNSAID

        self.do("chat.messages.enqueue", session, parts=[{"type": "text", "text": words}], id=id, expect=expect)

    @rule(session=SESSIONS)
    def claim(self, session: str) -> None:
        def expect(got: Any) -> Any:
            if session not in self.sessions:
                raise Refused("NotFound")
            mine = self.sessions[session]
            waiting = mine.those("queued")
            if not waiting:
                return None
            assert got.id == waiting[0].id
            mine.messages.remove(waiting[0])
            waiting[0].state = "shown"
            mine.messages.append(waiting[0])
            return UNSAID

        self.do("chat.messages.claim_queued", session, expect=expect)

    @rule(id=MESSAGES)
    def cancel(self, id: str) -> None:
        def expect(got: Any) -> Any:
            found = self.found(id)
            if found is None or found[1].state != "queued":
                return False
            found[1].state = "cancelled"
            return True

        self.do("chat.messages.cancel_queued", id, expect=expect)

    @rule(session=SESSIONS, pieces=st.lists(WORDS, max_size=3), whole=st.booleans())
    def answer(self, session: str, pieces: list[str], whole: bool) -> None:
        """A turn that streams in; one that was not finished is there as far as it came."""
        self.turns += 1
        id = f"turn {self.turns}"
        chunks: list[dict[str, Any]] = [{"type": "start", "messageId": id}, {"type": "text-start", "id": "t"}]
        chunks += [{"type": "text-delta", "id": "t", "delta": piece} for piece in pieces]
        chunks += [{"type": "text-end", "id": "t"}, {"type": "finish"}] if whole else []
        found = []
        for store in self.stores:
            try:
                with store.record(session) as recorder:
                    recorder.feed_many(chunks)
                found.append("done")
            except PersistError as error:
                found.append(type(error).__name__)
        assert set(found) == {"done" if session in self.sessions else "NotFound"}
        if session in self.sessions:
            self.sessions[session].messages.append(Message(id, "assistant", "".join(pieces)))

    @rule(session=SESSIONS, at=PICKS, verb=st.sampled_from(["rewind", "unrewind"]))
    def rewind(self, session: str, at: int, verb: str) -> None:
        known = self.sessions[session].messages if session in self.sessions else []
        anchor = known[at % len(known)] if known else Message("nothing", "user", "")

        def expect(got: Any) -> Any:
            if not known:
                raise Refused("NotFound")
            if anchor.state == "queued" or (verb == "rewind" and anchor.role != "user"):
                raise Refused("InvalidValue")
            place, changed = known.index(anchor), 0
            for index, one in enumerate(known):
                wanted = one.state
                if one.state in ("shown", "hidden") and (verb == "rewind" or index > place):
                    wanted = "hidden" if verb == "rewind" and index > place else "shown"
                changed += index > place and wanted != one.state
                one.state = wanted
            return changed

        self.do(f"chat.sessions.{verb}", session, anchor.id, expect=expect)

    def seen(self, tx: Any) -> Any:
        chat = tx.chat
        ids = sorted(one.id for one in chat.sessions.list(include_archived=True).items)
        return {
            "listed": sorted(one.id for one in chat.sessions.list().items),
            "all": {id: [_said(message) for message in chat.messages.list(id, include_hidden=True)] for id in ids},
            "shown": {id: [message["id"] for message in chat.messages.list(id)] for id in ids},
            "queued": {id: [message.id for message in chat.messages.queued(id)] for id in ids},
        }

    def expected(self) -> Any:
        known = self.sessions.items()
        return {
            "listed": sorted(id for id, one in known if not one.archived),
            "all": {id: [(m.id, m.role, m.text) for m in one.those("shown", "hidden", "cancelled")] for id, one in known},
            "shown": {id: [message.id for message in one.those("shown")] for id, one in known},
            "queued": {id: [message.id for message in one.those("queued")] for id, one in known},
        }


def _said(message: dict[str, Any]) -> tuple[str, str, str]:
    return message["id"], message["role"], "".join(part["text"] for part in message["parts"])
