"""People's sessions in channels and threads."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.statemachines.machine import UNSAID, Machine, Refused, page, pages

IDLE = timedelta(minutes=30)
CHANNELS, THREADS, USERS = st.sampled_from(["C", "D"]), st.sampled_from([None, "", "t"]), st.sampled_from(["u", "v"])
PICKS = st.integers(0, 4)


@dataclass
class Session:
    id: str
    key: tuple[str, str, str]
    at: datetime
    active: bool = True
    agent: str | None = None
    count: int = 0
    said: list[tuple[datetime, str]] = field(default_factory=list)
    delivered: dict[tuple[str, str], str] = field(default_factory=dict)


class Messaging(Machine):
    domain = "messaging"

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, Session] = {}

    def pick(self, number: int) -> str:
        known = [*self.sessions, "nobody"]
        return known[number % len(known)]

    def newest(self, **like: Any) -> list[Session]:
        found = [one for one in self.sessions.values() if all(getattr(one, name) == value for name, value in like.items())]
        return sorted(found, key=lambda one: (one.at, one.id), reverse=True)

    @rule(channel=CHANNELS, thread=THREADS, user=USERS, idle=st.sampled_from([IDLE, timedelta(0), timedelta.max]))
    def talk(self, channel: str, thread: str | None, user: str, idle: timedelta) -> None:
        def expect(got: Any) -> Any:
            if thread == "":
                raise Refused("InvalidValue")
            now, key = self.clock(), (channel, thread or "", user)
            standing = self.newest(key=key, active=True)
            if standing and (idle == timedelta.max or standing[0].at >= now - idle):
                assert got.id == standing[0].id
            else:
                for one in standing:
                    one.active = False
                assert got.id not in self.sessions
                self.sessions[got.id] = Session(got.id, key, now)
            return UNSAID

        self.do(
            "messaging.sessions.get_or_create",
            platform="p",
            channel_id=channel,
            thread_id=thread,
            user_id=user,
            idle=idle,
            expect=expect,
        )

    @rule(channel=CHANNELS, thread=st.sampled_from([None, "t"]), stale=st.booleans())
    def find(self, channel: str, thread: str | None, stale: bool) -> None:
        def expect(got: Any) -> Any:
            found = [one for one in self.newest(active=True) if one.key[:2] == (channel, thread or "")]
            there = found and (stale or found[0].at >= self.clock() - IDLE)
            assert (got and got.id) == (found[0].id if there else None)
            return UNSAID

        place = {"platform": "p", "channel_id": channel, "thread_id": thread}
        self.do("messaging.sessions.find_active", **place, include_stale=stale, expect=expect)

    @rule(at=PICKS, verb=st.sampled_from(["touch", "deactivate", "set_agent_session"]))
    def change(self, at: int, verb: str) -> None:
        id = self.pick(at)

        def expect(got: Any) -> Any:
            one = self.sessions.get(id)
            if one is None or (verb == "deactivate" and not one.active):
                return False
            if verb == "touch":
                one.count, one.at = one.count + 1, self.clock()
            elif verb == "deactivate":
                one.active = False
            else:
                one.agent = "log"
            return True

        self.do(f"messaging.sessions.{verb}", id, *(["log"] if verb == "set_agent_session" else []), expect=expect)

    @rule(
        at=PICKS,
        text=st.sampled_from(["", "a\x00", "\ud83d"]),
        role=st.sampled_from(["user", "assistant", "nobody"]),
        key=st.sampled_from([None, None, "1", "2"]),
    )
    def say(self, at: int, text: str, role: str, key: str | None) -> None:
        id = self.pick(at)

        def expect(got: Any) -> Any:
            if role == "nobody":
                raise Refused("InvalidValue")
            if id not in self.sessions:
                raise Refused("NotFound")
            session = self.sessions[id]
            if key is None or (role, key) not in session.delivered:
                session.said.append((self.clock(), text))
                if key is not None:
                    session.delivered[role, key] = text
            elif key is not None:
                assert got.content == session.delivered[role, key]
            return UNSAID

        self.do("messaging.messages.add", id, role=role, content=text, platform_message_id=key, expect=expect)

    @rule(days=st.sampled_from([0, 1]))
    def clean(self, days: int) -> None:
        def expect(got: Any) -> Any:
            before = self.clock() - timedelta(days=days)
            gone = [one.id for one in self.sessions.values() if not one.active and one.at < before]
            for id in gone:
                del self.sessions[id]
            return len(gone)

        self.do("messaging.sessions.cleanup_stale", timedelta(days=days), expect=expect)

    def seen(self, tx: Any) -> Any:
        sessions = tx.messaging.sessions
        return {
            "pages": [[one.id for one in some] for some in pages(sessions.list, 2)],
            "active": [one.id for one in sessions.list(active=True).items],
            "whole": {one.id: (one.message_count, one.active, one.agent_session_id) for one in sessions.list().items},
            "said": {
                one.id: [message.content for message in tx.messaging.messages.history(one.id)] for one in sessions.list().items
            },
        }

    def expected(self) -> Any:
        return {
            "pages": page([one.id for one in self.newest()], 2),
            "active": [one.id for one in self.newest(active=True)],
            "whole": {one.id: (one.count, one.active, one.agent) for one in self.newest()},
            "said": {one.id: [text for _, text in sorted(one.said, key=lambda said: said[0])] for one in self.newest()},
        }
