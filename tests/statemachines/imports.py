"""Exports that are not what `export` wrote: bytes that are damaged, and rows that are spoilt and sealed again."""

import io
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from hypothesis import strategies as st

from persist import Store
from persist.errors import PersistError
from persist.maintenance import export, import_
from persist.schema.metadata import metadata
from tests.statemachines.both_databases import clear, rows
from tests.statemachines.logs import damaged
from tests.unit.json_values import values as json_values


def exported(store: Store) -> bytes:
    """What is in it, as one file."""
    stream = io.BytesIO()
    export(store, stream)
    return stream.getvalue()


def spoilt(whole: bytes) -> st.SearchStrategy[bytes]:
    """The file with damage, or with a few values that do not belong there and an end that fits."""
    return st.one_of(damaged(whole), _sealed(whole.splitlines()))


@st.composite
def _sealed(draw: st.DrawFn, lines: Sequence[bytes]) -> bytes:
    found = [json.loads(line) for line in lines]
    values = json_values | st.sampled_from([{"base64": "!"}, {"float": "nan"}, {"float": "x"}, 10**30, 10**5000, "x" * 100_000])
    for _ in range(draw(st.integers(1, 3))):
        line = found[draw(st.integers(0, len(found) - 1))]
        inner = draw(st.sampled_from([line, *(value for value in line.values() if isinstance(value, dict))]))
        inner[draw(st.sampled_from([*inner, "strange"]))] = draw(values)
    if draw(st.booleans()):
        found.insert(draw(st.integers(1, len(found) - 1)), found[draw(st.integers(1, len(found) - 2))])
    tables: dict[str, int] = {}
    for line in found[1:-1]:
        if isinstance(line.get("table"), str):
            tables[line["table"]] = tables.get(line["table"], 0) + 1
    body = b"".join(_line(line) for line in found[:-1])
    end = found[-1].get("end")
    if isinstance(end, dict):
        end |= {"checksum": sha256(body).hexdigest(), "tables": tables}
    return body + _line(found[-1])


def _line(value: Any) -> bytes:
    try:
        return json.dumps(value).encode() + b"\n"
    except ValueError:  # a number of too many digits, which only this side cannot write
        return b'{"n":' + b"9" * 5000 + b"}\n"


def compare_imports(stores: Sequence[Store], content: bytes) -> list[str]:
    """Import it everywhere, and forget it again -> what is wrong."""
    wrong, ends = [], []
    for store in stores:
        try:
            import_(store, io.BytesIO(content), scopes={"run_id": "r", "instance_id": "i", "workspace_id": "w"})
            ends.append("done")
        except PersistError as error:
            ends.append(type(error).__name__)
            with store.read() as tx:
                left = [name for name, found in rows(tx._work, _TABLES).items() if found]
            if left:
                wrong.append(f"{ends[-1]}, and yet rows of {', '.join(left)} are there")
        except Exception as error:
            ends.append(type(error).__name__)
            wrong.append(f"importing met a bare {type(error).__name__}: {str(error)[:200]}")
        clear(store, metadata.sorted_tables)
    if len({end == "done" for end in ends}) > 1:  # of two faults either may be found first
        wrong.append(f"imports end as {ends}")
    return [f"{sentence} ({len(content)} bytes)" for sentence in wrong]


_TABLES = [table for table in metadata.sorted_tables if not table.info.get("seed") and table.name not in ("_meta",)]
