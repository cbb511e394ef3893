"""Transcripts of two projects, with parts, summaries, entries that are appended again, and deletions."""

from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.statemachines.machine import UNSAID, Machine, Refused, pages

PROJECTS, SESSIONS = st.sampled_from(["p", "p/s"]), st.sampled_from(["s", "s/t"])
PARTS = st.sampled_from(["", "", "a", "b/c"])
ENTRIES = st.lists(
    st.one_of(
        st.sampled_from(["1", "2", "3", "", "\x00\ud83d"]).map(lambda uuid: {"type": "x", "uuid": uuid}),
        st.sampled_from([{"type": "y", "uuid": "1"}, {"uuid": "1", "type": "y"}, {"type": 1, "uuid": "\x00\ud83d"}]),
        st.sampled_from([{"z": 1, "a": 2}, {"a": 2, "z": 1}, {"n": 10**30}, {"n": -0.0}, {"uuid": 1}]),
    ),
    max_size=4,
)


class Transcripts(Machine):
    domain = "transcripts"

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[tuple[str, str, str], list[Any]] = {}
        self.mains: dict[tuple[str, str], datetime] = {}
        self.summaries: dict[tuple[str, str], Any] = {}

    @rule(project=PROJECTS, session=SESSIONS, part=PARTS, entries=ENTRIES, once=st.booleans(), folded=st.booleans())
    def append(self, project: str, session: str, part: str, entries: list[Any], once: bool, folded: bool) -> None:
        def expect(got: Any) -> Any:
            stored = self.parts.get((project, session, part), [])
            alike = [one for one in stored if not (isinstance(one.get("uuid"), str) and one["uuid"])] if once else []
            new: list[Any] = []
            for entry in entries:
                uuid = entry.get("uuid")
                if isinstance(uuid, str) and uuid:
                    if entry in stored or entry in new:
                        continue
                elif entry in alike:
                    alike.remove(entry)
                    continue
                new.append(entry)
            if entries:
                all_of_it = [*stored, *new]
                self.parts[project, session, part] = all_of_it
                if not part:
                    self.mains[project, session] = max(self.mains.get((project, session), self.clock()), self.clock())
                    if new:
                        self.summaries[project, session] = _fold(None, all_of_it) if folded else None
            return len(new)

        fold = _fold if folded else None
        self.do("transcripts.entries.append", project, session, entries, subpath=part, once=once, fold=fold, expect=expect)

    @rule(project=PROJECTS, session=SESSIONS, part=PARTS)
    def delete(self, project: str, session: str, part: str) -> None:
        def expect(got: Any) -> Any:
            gone = [key for key in self.parts if key[:2] == (project, session) and part in ("", key[2])]
            for key in gone:
                del self.parts[key]
            if not part or not any(key[:2] == (project, session) for key in self.parts):
                self.mains.pop((project, session), None)
                self.summaries.pop((project, session), None)
            return bool(gone)

        self.do("transcripts.sessions.delete", project, session, subpath=part, expect=expect)

    @rule(project=PROJECTS, session=SESSIONS, part=PARTS, limit=st.sampled_from([0, 1, 3, -1]))
    def tail(self, project: str, session: str, part: str, limit: int) -> None:
        def expect(got: Any) -> Any:
            if limit < 0:
                raise Refused("InvalidValue")
            return self.parts.get((project, session, part), [])[-limit:] if limit else []

        self.do("transcripts.entries.tail", project, session, limit, subpath=part, expect=expect)

    @rule(project=PROJECTS)
    def list_mains(self, project: str) -> None:
        def expect(got: Any) -> Any:
            instants = [one.main_at for one in got]
            assert instants == sorted(instants, reverse=True)
            assert {one.session_id for one in got} == {session for of, session in self.mains if of == project}
            return UNSAID

        self.do("transcripts.sessions.mains", project, expect=expect)

    def seen(self, tx: Any) -> Any:
        found = [one for page in pages(tx.transcripts.sessions.list, 2) for one in page]
        parts = {
            (one.project, one.session_id, part)
            for one in found
            for part in ("", *tx.transcripts.sessions.subpaths(one.project, one.session_id))
        }
        entries = {part: tx.transcripts.entries.list(*part[:2], subpath=part[2]) for part in sorted(parts)}
        return {
            "entries": {part: found for part, found in entries.items() if found},
            "mains": {(one.project, one.session_id): one.main_at for one in found if one.main_at is not None},
            "summaries": {(one.project, one.session_id): one.summary for one in found if one.main_at is not None},
        }

    def expected(self) -> Any:
        return {
            "entries": dict(sorted(self.parts.items())),
            "mains": self.mains,
            "summaries": {session: self.summaries.get(session) for session in self.mains},
        }


def _fold(previous: Any, new: list[Any]) -> Any:
    return {"all": [*(previous or {"all": []})["all"], *new]}
