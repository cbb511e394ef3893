"""A coordinator of a cluster commits each statement on the node of its table, unless a BEGIN came before: there always is one."""

from typing import Any

import pytest

from persist.db.dialects.postgres import connections
from persist.db.dialects.postgres.pipelining import PipelinedConnection
from persist.errors import NotFound
from tests.contract.chat.scenes import create, say
from tests.contract.faces import every_way

pytestmark = every_way


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The first words of the statements that travel together, of a server that says that it is a coordinator."""
    monkeypatch.setattr(connections, "_ASK", connections._ASK.partition(b", EXISTS")[0] + b", true")
    found: list[list[str]] = []
    run = PipelinedConnection._run

    def told(self: PipelinedConnection, commands: Any) -> None:
        found.append([sql.split()[0].decode() for sql, *_ in commands])
        run(self, commands)

    monkeypatch.setattr(PipelinedConnection, "_run", told)
    return found


@pytest.mark.parametrize("backend", ["postgres"])
def test_what_is_written_together_is_committed_together(sent: list[list[str]], open_store: Any) -> None:
    store = open_store()
    sent.clear()
    session = create(store)
    say(store, session, "hello")
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        recorder.feed({"type": "text-delta", "id": "t", "delta": "a"})
        recorder.feed({"type": "finish"})
    store.usage.calls.record(model="large", run_id="r", owner="maria")
    is_open, written = False, 0
    for words in sent:
        is_open = is_open or words[0] == "BEGIN"
        if len(words) > 1 and {"INSERT", "UPDATE", "DELETE", "WITH"} & set(words):
            written += 1
            assert is_open, words
        is_open = is_open and words[-1] != "COMMIT"
    assert written > 4


@pytest.mark.parametrize("backend", ["postgres"])
def test_what_is_refused_leaves_nothing_and_the_connection_goes_on(sent: list[list[str]], open_store: Any) -> None:
    store = open_store()
    with pytest.raises(NotFound):
        say(store, "none", "lost")
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed({"type": "start"})
        store.chat.sessions.delete(session)
        with pytest.raises(NotFound):
            recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "a"}])
    another = create(store)
    say(store, another, "kept")
    assert [one.id for one in store.chat.sessions.list().items] == [another]
