"""Short ways to say what the tests of conversations say all the time, each verb in a transaction of its own."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from persist.conversations.schemas import Branch, ConvMessage, ConvSession
from persist.errors import InvalidValue
from tests.contract.conftest import Raw

NOWHERE = "no-such-id"
AT = 1_767_322_645.678
"""The instant of messages that do not say theirs."""

HARD_TEXTS = [
    "NUL \x00 inside",
    "line\u2028separator\u2029paragraph",
    "quotes \" ' ` and \\ backslash \\u0041",
    "\ud83d lone",
    "lone \ude00",
    "\ufdd0 and \ufdd01 and \ufdd0u0000",
    "\U0001f468\u200d\U0001f469 漢字 \uffff \x7f \x1b[0m",
    "' ); DROP TABLE messages; --",
    "%s %(name)s :name ? $1 {x}",
]
NOT_LABELS: list[Any] = [1, True, b"x", "", "a\x00b", "\ud83d"]


def message(id: str, content: Any = "hi", **fields: Any) -> dict[str, Any]:
    """A message as its runtime dumps it."""
    return {"id": id, "created_at": AT, "content": content, "role": "user", **fields}


def of_class(id: str, lion_class: Any, **fields: Any) -> dict[str, Any]:
    return message(id, node_metadata={"lion_class": lion_class}, **fields)


def numbered(count: int, first: int = 0, prefix: str = "m") -> list[str]:
    """Ids that sort as they count."""
    return [f"{prefix}{number:06}" for number in range(first, first + count)]


def put(store: Any, id: str, content: Any = "hi", **fields: Any) -> ConvMessage:
    stored: ConvMessage = store.conversations.messages.put(message(id, content, **fields))
    return stored


def put_many(store: Any, messages: Sequence[Any], **options: Any) -> int:
    return int(store.conversations.messages.put_many(messages, **options))


def say(store: Any, branch_id: str, *ids: str, **fields: Any) -> None:
    """The live write of messages with these ids."""
    with store.begin() as tx:
        for id in ids:
            tx.conversations.messages.record(branch_id, message(id, **fields))


def delete(store: Any, id: str) -> bool:
    """A message."""
    return bool(store.conversations.messages.delete(id))


def make_session(store: Any, **fields: Any) -> ConvSession:
    made: ConvSession = store.conversations.sessions.create(**fields)
    return made


def make_branch(store: Any, session_id: str | None = None, **fields: Any) -> Branch:
    """A branch, of a session of its own unless it is told which."""
    with store.begin() as tx:
        of = tx.conversations.sessions.create().id if session_id is None else session_id
        made: Branch = tx.conversations.branches.create(of, **fields)
    return made


def talk(store: Any, count: int, session_id: str | None = None, first: int = 0, prefix: str = "m") -> Branch:
    """A branch with so many messages."""
    branch = make_branch(store, session_id)
    put_many(store, [message(id, id) for id in numbered(count, first, prefix)], progression_ids=[branch.progression_id])
    return branch


def fork(store: Any, id: str, **options: Any) -> Branch:
    made: Branch = store.conversations.branches.fork(id, **options)
    return made


def make_progression(store: Any, ids: Iterable[str] = (), id: str | None = None) -> str:
    return str(store.conversations.progressions.create(id, ids=list(ids)))


def append(store: Any, progression_id: str, *ids: str) -> list[bool]:
    with store.begin() as tx:
        return [tx.conversations.progressions.append(progression_id, id) for id in ids]


def replace(store: Any, progression_id: str, ids: Sequence[str]) -> None:
    store.conversations.progressions.replace(progression_id, ids)


def insert(store: Any, progression_id: str, index: int, message_id: str) -> bool:
    return bool(store.conversations.progressions.insert(progression_id, index, message_id))


def remove(store: Any, progression_id: str, message_id: str) -> bool:
    return bool(store.conversations.progressions.remove(progression_id, message_id))


def stored(store: Any, id: str) -> ConvMessage | None:
    found: ConvMessage | None = store.conversations.messages.get(id)
    return found


def present(store: Any, id: str) -> ConvMessage:
    """The message that must be there."""
    found = stored(store, id)
    assert found is not None
    return found


def session_of(store: Any, id: str) -> ConvSession:
    found: ConvSession = store.conversations.sessions.get(id)
    return found


def branch_of(store: Any, id: str) -> Branch:
    found: Branch = store.conversations.branches.get(id)
    return found


def items(store: Any, progression_id: str) -> list[str]:
    return list(store.conversations.progressions.get(progression_id))


def containing(store: Any, message_id: str) -> list[str]:
    return list(store.conversations.progressions.containing(message_id))


def history(store: Any, branch_id: str, **options: Any) -> list[str]:
    """The ids of what a branch shows."""
    return [one.id for one in store.conversations.branches.history(branch_id, **options)]


def refused(verb: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The path that the refusal of a value names."""
    with pytest.raises(InvalidValue) as error:
        verb(*arguments, **options)
    return error.value.path


def selects(statements: Iterable[str]) -> list[str]:
    return [statement for statement in statements if statement.lstrip().upper().startswith(("SELECT", "WITH"))]


def counted(statements: list[str], call: Callable[[], Any]) -> int:
    """How many statements a call runs."""
    before = len(statements)
    call()
    return len(statements) - before


def array(raw: Raw, progression_id: str) -> list[str]:
    """The array, whose length the row says too."""
    found: list[str] = raw.json("SELECT collection FROM progressions WHERE id = ?", progression_id)
    assert raw.value("SELECT folded FROM progressions WHERE id = ?", progression_id) == len(found)
    return found
