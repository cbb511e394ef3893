"""`docs/round-trips.md`: the table of tests/roundtrips/bounds.csv for those who use the package."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.roundtrips.bounds import Row

PAGE = Path(__file__).parents[2] / "docs" / "round-trips.md"

_TOP = """# Round trips

How often a call waits for an answer of Postgres, at most. `python -m tests.roundtrips --page` writes this page from
`tests/roundtrips/bounds.csv`. Tests hold every call to it: with all of its arguments and with few, in a transaction of its own
(its commit included) and outside of one, on Store and on AsyncStore, with the log of events off and on. Tests call each verb in a
database that holds one of everything. Work that comes in portions adds what each portion waits for, such as pruning hundreds of
sessions. [Performance](performance.md) tells how this is done, what a first call adds, and why four calls
wait more than three times.

A verb outside of a transaction commits with its last statements, so it takes at most what the table says, and mostly one less:

```python
from persist import Store

with Store.open("sqlite:///state.db") as store:
    session = store.chat.sessions.create(agent="build", model={})
    with store.begin() as tx:                               # for what has to happen together; its COMMIT is one more
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
```
"""


def page(bounds: Mapping[str, Row]) -> str:
    """The whole page."""
    return "\n".join(_lines(bounds))


def _lines(bounds: Mapping[str, Row]) -> Iterator[str]:
    yield _TOP
    yield "| call | round trips |\n|---|---|"
    for row in bounds.values():
        name = f"`{row.name}`" if " " not in row.name else row.name
        yield f"| {name} | {row.bound} |"
    yield ""
