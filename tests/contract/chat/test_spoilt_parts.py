"""A part that others spoilt while text waits for it: whoever goes on with it is told, everybody else goes on without it."""

import json
import logging
from typing import Any

import pytest

from persist.errors import UnreadableRow
from tests.contract.chat.scenes import call, create, record, shown, text, words
from tests.contract.chat.spoiling import EVERY, JSON, rest, spoil, two_waiting
from tests.contract.conftest import Raw

EACH = pytest.mark.parametrize(("backend", "spoilt"), EVERY)


@EACH
def test_a_recorder_that_goes_on_with_it_is_told(store: Any, raw: Raw, database_url: str, spoilt: str) -> None:
    bad, good = two_waiting(store, database_url)
    before = spoil(database_url, spoilt)
    with store.record(bad) as recorder:
        with pytest.raises(UnreadableRow) as caught:
            recorder.feed({"type": "start", "messageId": "m-bad"})
        assert caught.value.table in spoilt
        assert caught.value.key is not None
        assert caught.value.key[0] == raw.value("SELECT id FROM chat_parts WHERE message_id = 'm-bad'")
        assert rest(raw) == before
        recorder.feed_many([{"type": "start", "messageId": "m-next"}, *text("another one")])
    assert words([store.chat.messages.get("m-next")]) == ["another one"]
    record(store, good, [{"type": "start", "messageId": "m-good"}, *text("!")])
    assert words(shown(store, good)) == ["so far and on!"]


@pytest.mark.parametrize(("backend", "spoilt"), [case for case in EVERY if "data_json = CAST" not in str(case.values)])
def test_readers_go_without_what_they_cannot_read(
    store: Any, database_url: str, spoilt: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = two_waiting(store, database_url)
    spoil(database_url, spoilt)
    assert words(shown(store, good)) == ["so far and on"]
    with caplog.at_level(logging.WARNING, "persist"), store.read() as tx:
        (message,) = tx.chat.messages.list(bad)
        assert message["id"] == "m-bad"
        json.loads(tx.chat.messages.list_json(bad))
    if "chat_part_deltas" in spoilt:
        assert message["parts"] == [{"type": "text", "text": "so far", "state": "streaming"}]
        assert "latest text" in caplog.text


@EACH
def test_repairing_every_session_passes_it_by(
    store: Any, raw: Raw, database_url: str, spoilt: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, _ = two_waiting(store, database_url)
    record(store, good := create(store), [call("bash", "c", {})])
    spoil(database_url, spoilt)
    raw.rows("UPDATE chat_parts SET tool_state = 'input-available', updated_at = 0 WHERE message_id = 'm-bad'")
    before = rest(raw)
    with caplog.at_level(logging.WARNING, "persist"), store.begin() as tx:
        assert tx.chat.messages.repair_interrupted(good) == 1
        assert tx.chat.messages.repair_interrupted(bad) == 0
    assert "left as it is" in caplog.text
    assert rest(raw) == before


@pytest.mark.parametrize("spoilt", JSON.values(), ids=JSON.keys())
def test_the_queue_and_approvals_go_on(store: Any, raw: Raw, database_url: str, spoilt: str) -> None:
    bad, _ = two_waiting(store, database_url)
    spoil(database_url, spoilt)
    for state in ("input-available", "approval-requested"):
        raw.rows("UPDATE chat_parts SET tool_state = ? WHERE message_id = 'm-bad'", state)
        with store.begin() as tx:
            assert tx.chat.messages.answer_approval(bad, "approval", approved=True) is False
            tx.chat.messages.enqueue(bad, parts=[])
            claimed = tx.chat.messages.claim_queued(bad, human_input_tools=["ask"])
            # what is no object at all is left out of what waits for a person
            assert (claimed is None) == (state == "approval-requested" and spoilt not in (JSON["a list"], JSON["null"]))


def test_metadata_that_is_no_object_is_read_as_none(store: Any, raw: Raw, session: str) -> None:
    record(store, session, [{"type": "start", "messageId": "m"}, *text("a")])
    raw.rows("UPDATE chat_messages SET metadata_json = '[1]' WHERE id = 'm'")
    record(store, session, [{"type": "start", "messageId": "m", "messageMetadata": {"k": 1}}, *text("b")])
    (message,) = shown(store, session)
    assert (message["metadata"], words([message])) == ({"k": 1}, ["ab"])
