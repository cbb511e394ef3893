"""A session of 500 messages with 5 parts each, read back whole: text, reasoning and tool calls, 1.4 MB of JSON."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import psycopg

import persist
from benchmarks.floors import connect, transcript
from benchmarks.goals import reached
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place
from persist import Store
from persist.db.values.json import value_of_jsonb

MESSAGES = 500
_ROUNDS = 60


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    path = place.folder / "reading.db"
    with Store.open(f"sqlite:///{path}") as store:
        times, size = _times(store, lambda: connect(path), place.quick)
    for key, name in (("wire", "to JSON"), ("dicts", "to dicts")):
        detail = f"{us(times[name])} vs {us(times['raw'])}; {size / 1e6:.1f} MB"
        yield reached(key, times[name] / times["raw"], detail)
    if place.postgres is None:
        return
    persist.upgrade(place.postgres)
    with Store.open(place.postgres) as store:
        times, _ = _times(store, lambda: _server(str(place.postgres)), place.quick)
    for name in ("to JSON", "to dicts"):
        what = f"Postgres: 500 messages x 5 parts {name}, vs raw rows and orjson"
        yield Row(what, times[name] / times["raw"], float("inf"), f"{us(times[name])} vs {us(times['raw'])}")


def _server(url: str) -> Any:
    return psycopg.connect(url, autocommit=True, prepare_threshold=0, options="-c search_path=persist")


def _times(store: Store, connect_raw: Callable[[], Any], quick: bool) -> tuple[dict[str, float], int]:
    """Medians, and the bytes of the JSON."""
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="bench", model={})
        for number in range(MESSAGES):
            tx.chat.messages.append(session.id, role="assistant", parts=_parts(number), metadata={"number": number})
    raw = connect_raw()

    def to_dicts() -> list[Any]:
        with store.read() as tx:
            return tx.chat.messages.list(session.id)

    def to_json() -> bytes:
        with store.read() as tx:
            return tx.chat.messages.list_json(session.id)

    assert to_dicts() == [_without_marks(message) for message in transcript(raw, session.id)]
    alternatives = {"raw": lambda: transcript(raw, session.id), "to dicts": to_dicts, "to JSON": to_json}
    taken = interleaved(alternatives, rounds=_ROUNDS // 3 if quick else _ROUNDS)
    raw.close()
    return {name: middle(seconds) for name, seconds in taken.items()}, len(to_json())


def _without_marks(message: dict[str, Any]) -> dict[str, Any]:
    """A raw message without what JSONB rows note about the order of keys."""
    return {**message, "parts": [value_of_jsonb(orjson.dumps(part).decode()) for part in message["parts"]]}


def _parts(number: int) -> list[dict[str, Any]]:
    text = {"type": "text", "text": "lorem ipsum " * 40, "state": "done"}
    return [{"type": "reasoning", "text": "thinking " * 50, "state": "done"}, text, _call(number, 0), _call(number, 1), text]


def _call(number: int, place: int) -> dict[str, Any]:
    return {
        "type": "tool-bash",
        "toolCallId": f"call-{number}-{place}",
        "state": "output-available",
        "input": {"command": "ls -la", "limits": [1, 2, 3]},
        "output": {"stdout": "app.py\n" * 65, "code": 0},
    }
