"""What a browser posts: the whole history of a session, of which nothing has changed, and with a new question at its end.

The history is 100 questions and 100 answers, each with a text and a tool call. It is read as `chat.messages.list` returns it.
"""

from collections.abc import Iterator
from typing import Any

import orjson

import persist
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place

QUESTIONS = 100
_TEXT = "lorem ipsum " * 20
_ANSWER = [
    {"type": "step-start"},
    {"type": "tool-read", "toolCallId": "c", "state": "output-available", "input": {"path": "a"}, "output": {"text": _TEXT}},
    {"type": "text", "text": _TEXT, "state": "done"},
]


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    yield from compare(place.file("posting"), "")
    if place.postgres is not None:
        yield from compare(place.postgres, "Postgres: ")


def compare(url: str, where: str) -> Iterator[Row]:
    """On one empty database."""
    with persist.Store.open(url, migrate=True) as store:
        session = store.chat.sessions.create(agent="bench", model={})
        with store.begin() as tx:
            for _ in range(QUESTIONS):
                tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": _TEXT}])
                tx.chat.messages.append(session.id, role="assistant", parts=_ANSWER)
        history = orjson.loads(store.chat.messages.list_json(session.id))
        asked = iter(range(10**6))

        def unchanged() -> None:
            assert not store.chat.messages.sync(session.id, history, trigger="submit-message").changed

        def question() -> None:
            new: dict[str, Any] = {"id": f"q{next(asked)}", "role": "user", "parts": [{"type": "text", "text": _TEXT}]}
            assert store.chat.messages.sync(session.id, [*history, new], trigger="submit-message").changed

        alternatives = {"read": lambda: store.chat.messages.list(session.id), "unchanged": unchanged}
        seconds = {name: middle(found) for name, found in interleaved(alternatives, rounds=60).items()}
        detail = f"{us(seconds['unchanged'])} vs {us(seconds['read'])}"
        yield Row(f"{where}an unchanged history posted, vs reading it", seconds["unchanged"] / seconds["read"], 2.0, detail)
        taken = middle(interleaved({"question": question}, rounds=60)["question"])
        yield Row(f"{where}a question posted with the history, vs reading that", taken / seconds["read"], float("inf"), us(taken))
