"""Replay streams of two sessions whose streams have the same names, with markers, retention and deletions."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.db.values.clock import epoch_ms
from tests.statemachines.machine import UNSAID, Machine, Refused, pages

SESSIONS, STREAMS = st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", ""])
MESSAGES = st.sampled_from([None, "", "said", "\x00\ud83d"])
KEPT = st.sampled_from([None, None, 0, 1, 3])
SPANS = st.sampled_from([None, None, timedelta(minutes=1), timedelta(0)])


@dataclass
class Stored:
    session: str
    stream: str
    position: int
    id: str
    message: str | None


class ReplayStreams(Machine):
    domain = "replay_streams"

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[Stored] = []
        self.sessions: set[str] = set()
        self.ids = ["rpl_unknown"]

    def of(self, session: str, stream: str) -> list[Stored]:
        return [one for one in self.stored if (one.session, one.stream) == (session, stream)]

    def expired(self, one: str, span: timedelta | None) -> bool:
        return span is not None and int(one[4:18], 16) < epoch_ms(self.clock() - span) << 12

    @rule(session=SESSIONS, stream=STREAMS, message=MESSAGES, keep=KEPT, span=SPANS)
    def append(self, session: str, stream: str, message: str | None, keep: int | None, span: timedelta | None) -> None:
        def expect(got: Any) -> Any:
            if keep == 0 or span == timedelta(0):
                raise Refused("InvalidValue")
            assert got > max(self.ids[1:], default="")
            self.ids.append(got)
            self.sessions.add(session)
            last = max((one.position for one in self.of(session, stream)), default=0) + 1
            self.stored.append(Stored(session, stream, last, got, message))
            over = [] if keep is None else [one for one in self.of(session, stream) if one.position <= last - keep]
            self.stored = [one for one in self.stored if one not in over]
            old = [one for one in self.stored if one.session == session and self.expired(one.id, span)][:32]
            self.stored = [one for one in self.stored if one not in old]
            return UNSAID

        self.do("replay_streams.messages.append", session, stream, message, keep=keep, keep_for=span, expect=expect)

    @rule(session=SESSIONS, pick=st.integers(0, 50), limit=st.sampled_from([1, 2, 100, 0]), span=SPANS)
    def read(self, session: str, pick: int, limit: int, span: timedelta | None) -> None:
        id = self.ids[pick % len(self.ids)]

        def expect(got: Any) -> Any:
            if limit == 0 or span == timedelta(0):
                raise Refused("InvalidValue")
            at = next((one for one in self.stored if (one.session, one.id) == (session, id)), None)
            if at is None or self.expired(id, span):
                return None
            missed = [one for one in self.of(session, at.stream) if one.position > at.position and one.message is not None]
            assert got.stream == at.stream
            assert [(one.id, one.message) for one in got.messages] == [(one.id, one.message) for one in missed[:limit]]
            assert got.position == ([at, *missed[:limit]])[-1].position
            return UNSAID

        self.do("replay_streams.messages.after", session, id, limit=limit, keep_for=span, expect=expect)

    @rule(session=SESSIONS)
    def delete(self, session: str) -> None:
        def expect(got: Any) -> Any:
            self.stored = [one for one in self.stored if one.session != session]
            known = session in self.sessions
            self.sessions.discard(session)
            return known

        self.do("replay_streams.sessions.delete", session, expect=expect)

    def seen(self, tx: Any) -> Any:
        found = [one.id for page in pages(tx.replay_streams.sessions.list, 1) for one in page]
        return sorted(found), {
            (session, stream): [(one.id, one.message) for one in tx.replay_streams.messages.list(session, stream)]
            for session in ("a", "b")
            for stream in ("1", "2", "")
        }

    def expected(self) -> Any:
        return sorted(self.sessions), {
            (session, stream): [(one.id, one.message) for one in self.of(session, stream) if one.message is not None]
            for session in ("a", "b")
            for stream in ("1", "2", "")
        }
