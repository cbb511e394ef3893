"""What is stored, or refused, stands in no error of a session store and not in the log."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import InvalidValue, PersistError
from tests.integrations.claude_agent_sdk.conftest import Do
from tests.integrations.telling import SECRET, require_silence

KEY: dict[str, Any] = {"project_key": "p", "session_id": "s"}
UNREADABLE = (f'["{SECRET}",', json.dumps([SECRET]), json.dumps({"data": {SECRET: [SECRET]}, "created_at": SECRET}))


def test_entries_and_summaries_that_cannot_be_read_or_stored_are_not_told(
    sessions: Any, do: Do, execute: Callable[[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    do(sessions.append(KEY, [{"type": "user", "uuid": "1"}]))
    for column in ("transcript_entries SET entry", "transcript_sessions SET summary"):
        for bad in UNREADABLE:
            assert execute(f"UPDATE {column} = '{bad}'") > 0
            calls = [sessions.load(KEY), sessions.list_session_summaries("p"), sessions.append(KEY, [{"type": "user"}])]
            for call in calls:
                try:
                    do(call)
                except PersistError as error:
                    require_silence(pytest.ExceptionInfo.from_exception(error))
    assert SECRET not in caplog.text
    with pytest.raises(InvalidValue) as caught:
        do(sessions.append(KEY, [{"type": "user", "said": {SECRET, 1}}]))
    require_silence(caught, caplog)
