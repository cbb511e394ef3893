"""Arguments of a wrong kind are refused by the framework's error."""

from typing import Any

import pytest
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.exceptions import UserError
from pydantic_ai.usage import RunUsage

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import InvalidInput, PersistConversationStore
from tests.integrations.pydantic_ai.conftest import Do
from tests.integrations.pydantic_ai.scenes import AT, asked, conversation
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors


def test_arguments_of_a_conversation_store(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    conversations = PersistConversationStore(store)
    do(conversations.save(conversation("c", "a")))
    stored = do(conversations.read_record("c"))
    record = ConversationRecord(
        conversation_id="d",
        head_id="e",
        usage=RunUsage(),
        deferred_tool_requests=None,
        scope="s",
        forked_from=None,
        forked_at=None,
        branches=[],
        revision="r",
        updated_at=AT,
    )
    entry = ConversationEntry(id="e", parent_id=None, message=asked("hi"))
    valid: dict[str, dict[str, Any]] = {
        "read_record": {"conversation_id": "c"},
        "read_records": {"scope": "s", "limit": 1},
        "write_record": {"record": record, "new_entries": [entry], "expected_revision": None},
        "read_entry": {"entry_id": stored.head_id},
        "read_history": {"head_id": stored.head_id, "limit": 1},
        "delete_record": {"conversation_id": "c", "expected_revision": "another"},
    }
    require_typed_errors(lambda: conversations, valid, do=do, database_url=database_url, error=UserError)


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a Store or an AsyncStore"):
        PersistConversationStore(wrong)
