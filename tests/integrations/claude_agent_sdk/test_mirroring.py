"""The framework's own code over our store: its mirror, resuming, its lists, forks, titles and imports."""

import json
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    get_subagent_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
    rename_session_via_store,
    tag_session_via_store,
)
from claude_agent_sdk._internal.session_resume import materialize_resume_session
from claude_agent_sdk._internal.transcript_mirror_batcher import TranscriptMirrorBatcher

from persist.errors import Unavailable
from persist.integrations.claude_agent_sdk import PersistSessionStore
from persist.testing import FrozenClock
from tests.integrations.kits import Do

SESSION = "11111111-2222-4333-8444-555555555555"
OTHER = "11111111-2222-4333-8444-666666666666"
AGENT = "subagents/agent-abc"


def entry(number: int, role: str, text: str, **more: Any) -> Any:
    return {
        "type": role,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number else None,
        "sessionId": SESSION,
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "message": {"role": role, "content": text},
        **more,
    }


CHAT = [entry(0, "user", "What is new?"), entry(1, "assistant", "Nothing \ud83d."), entry(2, "user", "Good.")]


class Failing(PersistSessionStore):
    """Loses the answers of the first appends: what was to be stored is, and the caller does not know."""

    lost = 2

    async def append(self, key: Any, entries: Any) -> None:
        await super().append(key, entries)
        if self.lost:
            self.lost -= 1
            raise Unavailable("the answer was lost")


@pytest.fixture
def project(tmp_path: Path) -> str:
    return project_key_for_directory(tmp_path)


def mirror(store: Any, home: Path, **options: Any) -> tuple[TranscriptMirrorBatcher, list[str]]:
    errors: list[str] = []

    async def on_error(key: Any, error: str) -> None:
        errors.append(error)

    return TranscriptMirrorBatcher(store=store, projects_dir=str(home / "projects"), on_error=on_error, **options), errors


def log_of(home: Path, project: str, subpath: str = "") -> str:
    path = home / "projects" / project / SESSION
    return f"{path / subpath if subpath else path}.jsonl"


def test_a_mirror_that_retries_stores_every_entry_once(store: Any, do: Do, tmp_path: Path, project: str) -> None:
    sessions: Any = Failing(store)

    async def mirrored() -> list[str]:
        batcher, errors = mirror(sessions, tmp_path)
        for one in CHAT:
            batcher.enqueue(log_of(tmp_path, project), [one])
        await batcher.close()
        return errors

    assert do(mirrored()) == []
    assert do(sessions.load({"project_key": project, "session_id": SESSION})) == CHAT


def test_an_eager_mirror_keeps_the_order(sessions: Any, do: Do, tmp_path: Path, project: str) -> None:
    many = [entry(number, "user", str(number)) for number in range(60)]

    async def mirrored() -> None:
        batcher, errors = mirror(sessions, tmp_path, max_pending_entries=0, max_pending_bytes=0)
        for number, one in enumerate(many):
            batcher.enqueue(log_of(tmp_path, project, AGENT if number % 3 == 2 else ""), [one])
        await batcher.close()
        assert errors == []

    do(mirrored())
    key: Any = {"project_key": project, "session_id": SESSION}
    assert do(sessions.load(key)) == [one for number, one in enumerate(many) if number % 3 != 2]
    assert do(sessions.load({**key, "subpath": AGENT})) == many[2::3]


def stored(sessions: Any, do: Do, project: str) -> dict[str, str]:
    """A session with a subagent."""
    key = {"project_key": project, "session_id": SESSION}
    do(sessions.append(key, CHAT))
    sub = {**key, "subpath": AGENT}
    do(sessions.append(sub, [{"type": "agent_metadata", "agentType": "old"}]))
    do(sessions.append(sub, [entry(9, "user", "Go.", isSidechain=True, agentId="abc", parentUuid=None)]))
    do(sessions.append(sub, [{"type": "agent_metadata", "agentType": "explore"}]))
    return key


@pytest.mark.parametrize("how", [{"resume": SESSION}, {"continue_conversation": True}], ids=lambda how: next(iter(how)))
def test_a_session_is_resumed_from_the_store(
    sessions: Any, do: Do, tmp_path: Path, project: str, how: Any, clock: FrozenClock
) -> None:
    stored(sessions, do, project)
    clock.advance(seconds=1)
    do(sessions.append({"project_key": project, "session_id": OTHER}, [{**CHAT[0], "isSidechain": True}]))
    options = ClaudeAgentOptions(cwd=tmp_path, session_store=sessions, env={"CLAUDE_CONFIG_DIR": str(tmp_path / "none")}, **how)
    found: Any = do(materialize_resume_session(options))
    assert found.resume_session_id == SESSION
    log = found.config_dir / "projects" / project / f"{SESSION}.jsonl"
    assert [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] == CHAT
    part = log.with_suffix("") / f"{AGENT}.jsonl"
    assert json.loads(part.with_name("agent-abc.meta.json").read_text(encoding="utf-8")) == {"agentType": "explore"}
    assert len(part.read_text(encoding="utf-8").splitlines()) == 1
    do(found.cleanup())


def test_the_frameworks_lists_and_changes(sessions: Any, do: Do, tmp_path: Path, project: str, clock: FrozenClock) -> None:
    key = stored(sessions, do, project)
    (listed,) = do(list_sessions_from_store(sessions, directory=str(tmp_path)))
    assert (listed.session_id, listed.first_prompt) == (SESSION, "What is new?")
    assert listed.last_modified == int(clock().timestamp() * 1000)
    messages = do(get_session_messages_from_store(sessions, SESSION, directory=str(tmp_path)))
    assert [message.message["content"] for message in messages] == ["What is new?", "Nothing \ud83d.", "Good."]
    assert do(list_subagents_from_store(sessions, SESSION, directory=str(tmp_path))) == ["abc"]
    assert len(do(get_subagent_messages_from_store(sessions, SESSION, "abc", directory=str(tmp_path)))) == 1
    do(rename_session_via_store(sessions, SESSION, "A title", directory=str(tmp_path)))
    do(tag_session_via_store(sessions, SESSION, "a-tag", directory=str(tmp_path)))
    (listed,) = do(list_sessions_from_store(sessions, directory=str(tmp_path)))
    assert (listed.custom_title, listed.tag) == ("A title", "a-tag")
    fork = do(fork_session_via_store(sessions, SESSION, directory=str(tmp_path)))
    assert len(do(sessions.load({**key, "session_id": fork.session_id}))) >= len(CHAT)
    assert {one.session_id for one in do(list_sessions_from_store(sessions, directory=str(tmp_path)))} == {
        SESSION,
        fork.session_id,
    }
    do(delete_session_via_store(sessions, SESSION, directory=str(tmp_path)))
    assert do(sessions.load({**key, "subpath": AGENT})) is None
    assert [one.session_id for one in do(list_sessions_from_store(sessions, directory=str(tmp_path)))] == [fork.session_id]


def test_a_session_that_something_else_stored_is_listed_all_the_same(
    sessions: Any, store: Any, look: Any, do: Do, tmp_path: Path, project: str
) -> None:
    with look.begin() as tx:
        tx.transcripts.entries.append(project, SESSION, CHAT)
    assert do(sessions.list_session_summaries(project)) == []
    (listed,) = do(list_sessions_from_store(sessions, directory=str(tmp_path)))
    assert listed.first_prompt == "What is new?"
    key: Any = {"project_key": project, "session_id": SESSION}
    do(sessions.append(key, [{"type": "custom-title", "customTitle": "t"}]))
    (summary,) = do(sessions.list_session_summaries(project))
    assert (summary["data"]["first_prompt"], summary["data"]["custom_title"]) == ("What is new?", "t")


def test_the_frameworks_import(sessions: Any, do: Do, tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    path = Path(log_of(tmp_path, project))
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in CHAT), encoding="utf-8")
    for _ in range(2):
        do(import_session_to_store(SESSION, sessions))
    key: Any = {"project_key": project, "session_id": SESSION}
    assert do(sessions.load(key)) == CHAT
    assert do(sessions.import_session(SESSION)) == 0
