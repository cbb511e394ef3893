"""Something of every table of application sessions, made through the public API, and what a reader sees of it."""

from dataclasses import asdict
from typing import Any

from persist import Store
from persist.framework_state.app_sessions.schemas import ArtifactKey, LoadedSession, NewEvent, NewMemory, StateChange
from persist.store.transaction import Transaction

HARD = '"Na\u00efve\\u0000 text \\ud83d stays what it was."'
_NAMES = ("app", "maria", "talk")
_FILES = [ArtifactKey("app", "maria", "talk", "notes.txt"), ArtifactKey("app", "maria", None, "photo.png")]


def fill_app_sessions(store: Store) -> None:
    """A session of two events with state in every scope, an artifact of two versions, one of the user, and memories.

    One version has its bytes in a blob, although they are few: kept databases are not to grow.
    """
    with store.begin() as tx:
        domain = tx.app_sessions
        domain.sessions.create(*_NAMES, state=StateChange(app={"theme": HARD}, session={"step": "1"}))
        domain.sessions.append(*_NAMES, NewEvent("first", 1_700_000_000.123456, HARD, author="maria", invocation_id="i-1"))
        change = StateChange(user={"name": "NaN"}, session={"step": "2"})
        domain.sessions.append(*_NAMES, NewEvent("second", 1_700_000_001.5, "{}", author="agent \ud83d"), state=change)
        domain.artifacts.save(_FILES[0], HARD)
        domain.artifacts.save(_FILES[0], "{}", data=b"\x00\xff", mime_type="text/plain", metadata='{"by":"maria"}')
        domain.artifacts.save(_FILES[1], "{}", data=b"")
        runtime = tx._work.runtime
        usual, runtime.settings = runtime.settings, runtime.settings.model_copy(update={"inline_file_bytes": 200})
        domain.artifacts.save(_FILES[1], "{}", data=bytes(range(201)), mime_type="image/png")
        runtime.settings = usual
        remarks = [
            NewMemory("first", HARD, "hello w\u00f6rld", ["hello", "w\u00f6rld"]),
            NewMemory("second", "{}", "bye", ["bye"]),
        ]
        domain.memories.replace(*_NAMES, remarks)
        domain.memories.delete("app", "maria", "second")


def app_sessions_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    domain = tx.app_sessions
    loaded = [domain.sessions.load(*_NAMES)] if domain.sessions.list().items else []
    return {
        "app sessions": {one.session.id: _session(one) for one in loaded if one is not None},
        "artifacts": {
            key.filename: {str(number.version): _artifact(tx, key, number.version) for number in versions}
            for key in _FILES
            if (versions := domain.artifacts.versions(key))
        },
        "remarks": {one.id: asdict(one) for one in domain.memories.search("app", "maria", ["hello", "r", "bye"])},
    }


def _session(found: LoadedSession) -> dict[str, Any]:
    return {
        "session": found.session.model_dump(mode="json"),
        "events": [event.model_dump(mode="json") for event in found.events],
        "state": asdict(found.state),
    }


def _artifact(tx: Transaction, key: ArtifactKey, version: int) -> dict[str, Any]:
    found = tx.app_sessions.artifacts.load(key, version)
    assert found is not None
    data = None if found.data is None else found.data.hex()
    return {"version": found.version.model_dump(mode="json"), "part": found.part, "data": data}
