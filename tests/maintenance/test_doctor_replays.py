"""`maintenance.doctor` on messages of replay streams that other programs wrote."""

import json
from typing import Any

import pytest

from persist import Store
from persist.maintenance import doctor
from persist.testing import FrozenClock
from tests.schema.places import Place


@pytest.mark.parametrize("text", ['{"cut', '{"a": 1]', '{"a": 1} and more', '{"a":' * 100_000], ids=lambda text: text[:8])
def test_messages_whose_json_is_damaged_are_named(database_url: str, clock: FrozenClock, text: str) -> None:
    with Store.open(database_url, clock=clock) as store:
        append: Any = store.replay_streams.messages.append
        for number in range(3):
            append("s", "1", json.dumps({"jsonrpc": "2.0", "id": number, "result": {}}))
        append("s", "1", None)
        append("s", "1", "Any text may be a message.")
        assert doctor(store) == []
        spoilt = append("s", "1", json.dumps({"jsonrpc": "2.0"}))
        place = Place(database_url)
        place.run(f"UPDATE {place.named('replay_messages')} SET message = '{text}' WHERE id = '{spoilt}'")
        (found,) = doctor(store)
        assert (found.code, found.severity, found.subject) == ("replay_message", "warning", f"replay message {spoilt}")
        assert "JSON is damaged" in found.message
        assert doctor(store, fix=True) == [found]


def test_every_page_of_messages_is_read(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            append = tx.replay_streams.messages.append
            for number in range(1_100):
                append(f"s{number % 3}", "1", "{no" if number % 10 == 0 else "{}")
        found = doctor(store)
        assert [one.code for one in found] == ["replay_message"] * len(found)
        assert found[-1].message == "and 10 more of this kind."
