"""Sessions of two users: events in order, state in three scopes, writers that are outdated, artifacts, erasure."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent, StateChange
from tests.statemachines.machine import UNSAID, Machine, Refused

USERS, IDS = st.sampled_from(["u", "v"]), st.sampled_from(["1", "2"])
ENTRIES = st.dictionaries(st.sampled_from(["k", "l", ""]), st.sampled_from(["1", "2", '"\\u0000"']), max_size=2)
CHANGES = st.builds(StateChange, app=ENTRIES, user=ENTRIES, session=ENTRIES)


class AppSessions(Machine):
    domain = "app_sessions"

    def __init__(self) -> None:
        super().__init__()
        self.app: dict[str, str] = {}
        self.users: dict[str, dict[str, str]] = {"u": {}, "v": {}}
        self.sessions: dict[tuple[str, str], dict[str, Any]] = {}
        self.markers: list[str] = ["unknown"]
        self.artifacts: dict[tuple[str, str | None, str], list[bytes | None]] = {}

    def _set(self, user: str, id: str, change: StateChange) -> None:
        self.app |= change.app
        self.users[user] |= change.user
        self.sessions[user, id]["state"] |= change.session

    @rule(user=USERS, id=IDS, change=CHANGES)
    def create(self, user: str, id: str, change: StateChange) -> None:
        def expect(got: Any) -> Any:
            if (user, id) in self.sessions:
                raise Refused("Conflict")
            self.sessions[user, id] = {"events": [], "state": {}, "marker": got.session.marker}
            self.markers.append(got.session.marker)
            self._set(user, id, change)
            found = (dict(got.state.app), dict(got.state.user), dict(got.state.session))
            assert found == (self.app, self.users[user], change.session)
            return UNSAID

        self.do("app_sessions.sessions.create", "app", user, id, state=change, expect=expect)

    @rule(
        user=USERS,
        id=IDS,
        event=st.builds(
            NewEvent, st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([1.0, 2.5, 0.0]), st.sampled_from(["1", "2"])
        ),
        change=CHANGES,
        pick=st.integers(-9, 9),
    )
    def append(self, user: str, id: str, event: NewEvent, change: StateChange, pick: int) -> None:
        session = self.sessions.get((user, id))
        current = self.markers[0] if session is None else session["marker"]
        expected = None if pick < -4 else current if pick < 0 else self.markers[pick % len(self.markers)]

        def expect(got: Any) -> Any:
            if session is None:
                raise Refused("NotFound")
            same = [at for at, one in enumerate(session["events"]) if (one.id, one.data) == (event.id, event.data)]
            if same:
                assert (got.was_there, got.is_newest) == (True, same[-1] == len(session["events"]) - 1)
                return UNSAID
            if expected not in (None, session["marker"]):
                raise Refused("Conflict")
            session["events"].append(event)
            session["marker"] = got.session.marker
            self.markers.append(got.session.marker)
            self._set(user, id, change)
            assert (got.was_there, got.is_newest, got.session.revision) == (False, True, len(session["events"]))
            return UNSAID

        self.do("app_sessions.sessions.append", "app", user, id, event, state=change, expected=expected, expect=expect)

    def _ordered(self, user: str, id: str) -> list[tuple[str, str]]:
        return [(one.id, one.data) for one in self.sessions[user, id]["events"]]

    @rule(user=USERS, id=IDS, recent=st.sampled_from([0, 1, 2]), since=st.sampled_from([None, 1.0]))
    def window(self, user: str, id: str, recent: int, since: float | None) -> None:
        def expect(got: Any) -> Any:
            session = self.sessions.get((user, id))
            if session is None:
                return None
            late = {(one.id, one.data) for one in session["events"] if since is None or one.timestamp >= since}
            wanted = [one for one in self._ordered(user, id) if one in late]
            assert [(one.id, one.data) for one in got.events] == (wanted[-recent:] if recent else [])
            return UNSAID

        self.do("app_sessions.sessions.load", "app", user, id, recent=recent, since=since, expect=expect)

    @rule(user=USERS, id=IDS)
    def delete(self, user: str, id: str) -> None:
        self.do(
            "app_sessions.sessions.delete", "app", user, id, expect=lambda got: self.sessions.pop((user, id), None) is not None
        )

    @rule(user=USERS)
    def erase(self, user: str) -> None:
        def expect(got: Any) -> Any:
            self.users[user] = {}
            self.sessions = {key: one for key, one in self.sessions.items() if key[0] != user}
            self.artifacts = {key: one for key, one in self.artifacts.items() if key[0] != user}
            return UNSAID

        self.do("app_sessions.sessions.erase_user", "app", user, expect=expect)

    @rule(
        user=USERS,
        id=st.sampled_from([None, "1", "2"]),
        name=st.sampled_from(["f", "g"]),
        data=st.sampled_from([None, b"", b"\x00"]),
    )
    def save(self, user: str, id: str | None, name: str, data: bytes | None) -> None:
        def expect(got: Any) -> Any:
            versions = self.artifacts.setdefault((user, id, name), [])
            versions.append(data)
            return len(versions) - 1

        key = ArtifactKey("app", user, id, name)
        more = {"data": data, "mime_type": None, "metadata": "{}"}
        self.do("app_sessions.artifacts.save", key, '{"text":"x"}', **more, expect=expect)

    @rule(user=USERS, id=st.sampled_from([None, "1"]))
    def remove(self, user: str, id: str | None) -> None:
        def expect(got: Any) -> Any:
            self.artifacts.pop((user, id, "f"), None)
            return UNSAID

        self.do("app_sessions.artifacts.delete", ArtifactKey("app", user, id, "f"), expect=expect)

    def seen(self, tx: Any) -> Any:
        sessions = {}
        for one in tx.app_sessions.sessions.of_app("app"):
            key = one.session.user_id, one.session.session_id
            found = tx.app_sessions.sessions.load("app", *key)
            assert found.state == one.state
            assert (dict(one.state.app), dict(one.state.user)) == (self.app, self.users[key[0]])
            sessions[key] = [[(event.id, event.data) for event in found.events], sorted(found.state.session.items())]
        users = {user: sorted(tx.app_sessions.sessions.user_state("app", user).items()) for user in ("u", "v")}
        files = {}
        for user in ("u", "v"):
            for id in (None, "1", "2"):
                for name in ("f", "g"):
                    file = ArtifactKey("app", user, id, name)
                    versions = [one.version for one in tx.app_sessions.artifacts.versions(file)]
                    files[f"{user} {id} {name}"] = [tx.app_sessions.artifacts.load(file, version).data for version in versions]
        return dict(sorted(sessions.items())), users, {name: found for name, found in files.items() if found}

    def expected(self) -> Any:
        sessions = {key: [self._ordered(*key), sorted(one["state"].items())] for key, one in sorted(self.sessions.items())}
        users = {user: sorted(entries.items()) for user, entries in self.users.items()}
        return sessions, users, {f"{user} {id} {name}": one for (user, id, name), one in self._files()}

    def _files(self) -> Any:
        order = [(user, id, name) for user in ("u", "v") for id in (None, "1", "2") for name in ("f", "g")]
        return [(key, self.artifacts[key]) for key in order if self.artifacts.get(key)]
