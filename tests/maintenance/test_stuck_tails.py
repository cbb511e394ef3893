"""Text that waits for a part that others spoilt: files open, sweeps fold everything else, and doctor names what is stuck."""

import io
import json
import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from persist import Store
from persist.maintenance import doctor, export, maintain
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.chat.scenes import shown, words
from tests.contract.chat.spoiling import ANYTHING, EVERY, JSON, rest, spoil, two_waiting
from tests.contract.conftest import Raw

NO_ID = "UPDATE chat_part_deltas SET part_id = CAST(x'ff' AS TEXT) WHERE part_id = {part}"
NO_ID_AT_ALL = NO_ID + "; UPDATE chat_parts SET id = CAST(x'ff' AS TEXT) WHERE message_id = 'm-bad'"
NAMES = {"tail_unreadable", "tails_unfolded", "unreadable"}


def left(url: str) -> list[Any]:
    with closing(Raw(url)) as raw:
        return rest(raw)


def folded(url: str, before: list[Any]) -> None:
    """The good one's pieces are gone, and everything else is as it was."""
    now = left(url)
    assert len(now) == len(before) - 2
    assert all(row in before for row in now)


@each("spoilt", [*JSON.values(), *ANYTHING.values(), NO_ID])
def test_the_file_opens_and_the_others_are_folded(new_file: Callable[[], str], clock: FrozenClock, spoilt: str) -> None:
    url = new_file()
    with Store.open(url, clock=clock) as store:
        _, good = two_waiting(store, url)
    before = spoil(url, spoilt)
    with Store.open(url, clock=clock) as store:
        folded(url, before)
        assert words(shown(store, good)) == ["so far and on"]


def test_a_file_with_an_id_that_nobody_can_read_opens(sqlite_url: str, clock: FrozenClock) -> None:
    with Store.open(sqlite_url, clock=clock) as store:
        _, good = two_waiting(store, sqlite_url)
    for statement in NO_ID_AT_ALL.split("; "):
        before = spoil(sqlite_url, statement)
    with Store.open(sqlite_url, clock=clock) as store:
        folded(sqlite_url, before)
        assert not maintain(store).failed
        assert "unreadable" in [finding.code for finding in doctor(store, fix=True)]
        assert words(shown(store, good)) == ["so far and on"]
    assert left(sqlite_url) == []
    with closing(Raw(sqlite_url)) as raw:
        assert raw.count("quarantine") == 3  # the part and both its pieces


@pytest.mark.parametrize(("backend", "spoilt"), [*EVERY, pytest.param("sqlite", NO_ID, id="sqlite, an id of no UTF-8")])
def test_doctor_names_it_and_maintain_folds_the_others_and_says_what_is_left(
    store: Store, url: str, spoilt: str, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = two_waiting(store, url)
    before = spoil(url, spoilt)
    assert {finding.code for finding in doctor(store)} >= NAMES
    assert maintain(store, dry_run=True).steps[0].tables == {"chat_parts": 1}
    caplog.clear()
    with caplog.at_level(logging.WARNING, "persist"):
        report = maintain(store)
    assert (report.failed, report.steps[0].tables) == (False, {"chat_parts": 1})
    assert caplog.text.count("is left as it is") == 1
    folded(url, before)
    if spoilt in JSON.values():  # an export has what can be read
        for session, said in zip(sessions, (0, 1), strict=True):
            stream = io.BytesIO()
            export(store, stream, session_id=session)
            rows = [json.loads(line) for line in stream.getvalue().splitlines()]
            assert len([row for row in rows if "so far and on" in json.dumps(row)]) == said
    assert all(one.fixed for one in doctor(store, fix=True) if one.code == "unreadable")
    assert NAMES.isdisjoint({finding.code for finding in doctor(store)})
    assert words(shown(store, sessions[1])) == ["so far and on"]


@pytest.mark.one_database
def test_doctor_mends_the_others(store: Store, url: str) -> None:
    _, good = two_waiting(store, url)
    spoil(url, JSON["no type"])
    findings = {finding.code: finding for finding in doctor(store, fix=True)}
    assert (findings["unreadable"].fixed, findings["tails_unfolded"].fixed) == (True, True)
    assert NAMES.isdisjoint({finding.code for finding in doctor(store)})
    assert words(shown(store, good)) == ["so far and on"]


@pytest.mark.one_database
def test_more_than_a_transaction_folds_may_be_stuck(store: Store, url: str) -> None:
    two_waiting(store, url)
    with closing(Raw(url)) as raw:
        for number in range(120):
            raw.rows(
                'INSERT INTO chat_parts (id, message_id, session_id, "index", type, created_at, updated_at, data_json)'
                " SELECT CAST(? AS TEXT), message_id, session_id, CAST(? AS BIGINT), type, 0, 0, '{}' FROM chat_parts"
                " WHERE message_id = 'm-bad' AND \"index\" = 0",
                f"a-{number:03}",
                number + 1,
            )
            raw.rows("INSERT INTO chat_part_deltas VALUES (CAST(? AS TEXT), 1, 0, 'more')", f"a-{number:03}")
        assert maintain(store).steps[0].tables == {"chat_parts": 2}
        assert raw.count("chat_part_deltas") == 120
