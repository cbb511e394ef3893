"""How often the conversation store waits for an answer of Postgres."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord

from persist import Store
from persist.integrations.pydantic_ai import PersistConversationStore
from tests.integrations.pydantic_ai.conftest import Do
from tests.integrations.pydantic_ai.scenes import asked
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

ROWS = (
    Row("write_record", 2),
    Row("delete_record", 2),
    Row("read_record", 1),
    Row("read_records", 1),
    Row("read_history", 1),
    Row("read_entry", 1),
)


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        conversations, numbers = PersistConversationStore(store), count()
        written: list[ConversationRecord] = []

        def write() -> None:
            entry = ConversationEntry(parent_id=None, message=asked("a"))
            record = ConversationRecord(conversation_id=f"c{next(numbers)}", head_id=entry.id)
            do(conversations.write_record(record, new_entries=[entry], expected_revision=None))
            written.append(record)

        def delete() -> None:
            gone = written.pop()
            do(conversations.delete_record(gone.conversation_id, expected_revision=gone.revision))

        for _ in range(20):
            write()
        head = written[0].head_id
        assert head is not None
        methods: dict[str, Callable[[], object]] = {
            "write_record": write,
            "delete_record": delete,
            "read_record": lambda: do(conversations.read_record("c0")),
            "read_records": lambda: do(conversations.read_records()),
            "read_history": lambda: do(conversations.read_history(head)),
            "read_entry": lambda: do(conversations.read_entry(head)),
        }
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))
