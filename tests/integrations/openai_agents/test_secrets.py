"""What is stored, or refused, stands in no error of a session and not in the log."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from persist.errors import InvalidValue
from tests.integrations.openai_agents.conftest import Session
from tests.integrations.telling import SECRET, require_silence


class Told:
    """A value of no JSON, whose text is a secret."""

    def __repr__(self) -> str:
        return SECRET


def test_items_that_cannot_be_read_or_stored_are_not_told(
    session: Session, do: Callable[[Awaitable[Any]], Any], execute: Callable[[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    do(session().add_items([{"role": "user", "content": "one"}]))
    for unreadable in (f'["{SECRET}",', [f'["{SECRET}",']):
        assert execute(f"UPDATE chat_messages SET metadata_json = '{json.dumps({'openai_agents': unreadable})}'") == 1
        do(session().get_items())
    assert SECRET not in caplog.text
    circle: dict[str, Any] = {"role": "user", "content": SECRET}
    circle["again"] = circle
    for item in (circle, {"content": Told()}, {SECRET: {1, 2}}):
        with pytest.raises(InvalidValue, match="it is no JSON") as caught:
            do(session().add_items([item]))
        require_silence(caught, caplog)
    with pytest.raises(InvalidValue, match="no session settings") as caught:
        session(session_settings={"limit": SECRET})
    require_silence(caught, caplog)
