"""A connection string that asks for another encoding than UTF-8."""

import pytest

from persist import Store

SAID = "日本, ä, €"


@pytest.mark.parametrize("encoding", ["latin1", "SQL_ASCII", "utf8"])
def test_text_is_kept_whatever_encoding_the_url_names(postgres_url: str, encoding: str) -> None:
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}client_encoding={encoding}"
    with Store.open(url) as store:
        session = store.chat.sessions.create(agent=SAID, model={})
        with store.record(session.id) as recorder:
            recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": SAID}])
        assert store.chat.sessions.get(session.id).agent == SAID
        assert store.chat.messages.list(session.id)[0]["parts"][0]["text"] == SAID


def test_text_is_kept_whatever_encoding_the_environment_names(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    with Store.open(postgres_url) as store:
        session = store.chat.sessions.create(agent=SAID, model={})
        assert store.chat.sessions.get(session.id).agent == SAID
