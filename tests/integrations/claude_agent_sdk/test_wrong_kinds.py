"""Arguments of a wrong kind are refused by the framework's error."""

from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeSDKError

from persist import AsyncStore, Store
from persist.integrations.claude_agent_sdk import InvalidEntry, PersistSessionStore
from tests.integrations.claude_agent_sdk.conftest import Do
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors

KEY = {"project_key": "p", "session_id": "s"}


def test_arguments_of_a_wrong_kind(
    store: Store | AsyncStore, database_url: str, do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    do(PersistSessionStore(store).append(KEY, [{"type": "x"}]))  # type: ignore[arg-type]  # as users write keys
    local = tmp_path / "projects" / "p" / "s.jsonl"
    local.parent.mkdir(parents=True)
    local.write_text('{"type": "user", "uuid": "1", "sessionId": "s"}\n')
    valid: dict[str, dict[str, Any]] = {
        "append": {"key": KEY, "entries": [{"type": "user", "uuid": "1", "message": {"role": "user", "content": "hi"}}]},
        "load": {"key": KEY},
        "tail": {"key": KEY, "limit": 1},
        "list_sessions": {"project_key": "p"},
        "list_session_summaries": {"project_key": "p"},
        "list_subkeys": {"key": KEY},
        "import_session": {"session_id": "s", "home": str(tmp_path), "directory_key": "p", "project_key": "q"},
        "write_session": {"key": KEY, "home": tmp_path, "overwrite": True},
        "delete": {"key": {**KEY, "subpath": "a"}},
    }
    require_typed_errors(lambda: PersistSessionStore(store), valid, do=do, database_url=database_url, error=ClaudeSDKError)


@pytest.mark.parametrize("name", ["sub_path", "Subpath", 1, None], ids=repr)
def test_a_key_with_a_name_that_no_key_has_is_refused(sessions: Any, do: Do, name: Any) -> None:
    key = {**KEY, name: "subagents/agent-1"}
    for call in (sessions.append(key, [{"type": "x"}]), sessions.load(key), sessions.delete(key), sessions.list_subkeys(key)):
        with pytest.raises(InvalidEntry, match="only project_key, session_id, subpath"):
            do(call)
    assert do(sessions.load(KEY)) is None


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(wrong: Any) -> None:
    with pytest.raises(InvalidEntry, match="expected a Store or an AsyncStore"):
        PersistSessionStore(wrong)
